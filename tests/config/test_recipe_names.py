"""A recipe of this project is found by its name, wherever the command is run."""

import pathlib

import pytest

from vit_jax.config import ConfigError
from vit_jax.config.default_workdir import default
from vit_jax.config.recipe_file import INSTALLED, load, path_of_recipe
from vit_jax.extras.commands import runs
from vit_jax.extras.experiments import vtab
from vit_jax.extras.experiments.studies import loading, results

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch, tmp_path):
  monkeypatch.chdir(tmp_path)


def test_in_any_folder():
  assert load("vit_digits") == load(str(ROOT / "configs" / "vit_digits.py"))
  assert load("hyperrule:R50x1,pets") == load(f"{INSTALLED}/hyperrule.py:R50x1,pets")
  assert [*loading.functions("positions")] == ["small", "paper"]


def test_in_any_folder_by_its_path():
  assert load("configs/vit_digits.py") == load("vit_digits")
  assert [*loading.functions("configs/studies/vtab.py")] == ["small", "paper"]
  assert default("configs/vit_digits.py") == pathlib.Path("workdirs", "vit_digits")
  assert results.in_paper(loading.load("positions", "paper"))
  assert len(vtab.study("ViT-B/16", "w.npz").cells) == 19


def test_one_in_the_current_folder_comes_first(tmp_path):
  for own in ("configs/vit_digits.py", "configs/mine.py"):
    (tmp_path / own).parent.mkdir(exist_ok=True)
    (tmp_path / own).touch()
    assert path_of_recipe(pathlib.Path(own).stem) == own
    assert path_of_recipe(own) == own
  (tmp_path / "vit_digits").touch()
  assert path_of_recipe("vit_digits") == "vit_digits"


@pytest.mark.parametrize(
  ("command", "names"),
  [("train", ["photos"]), ("finetune", ["w.npz", "photos"]), ("evaluate", ["w.npz", "photos"])],
)
def test_names_of_data_never_run_a_file_of_the_current_folder(tmp_path, command, names):
  for file in (f"configs/{command}.py", command):
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text("raise SystemExit")
  recipe = runs.flag_of(command, names).removeprefix("--config=")
  name = recipe.partition(":")[0]
  assert path_of_recipe(name) == str(INSTALLED / f"{command}.py")
  assert path_of_recipe(f"configs/{command}.py") == f"configs/{command}.py"
  assert path_of_recipe(f"./{command}") == f"./{command}"


def test_the_folder_of_a_name_of_data_is_not_that_of_a_file_in_the_current_folder(
  tmp_path, monkeypatch
):
  plain = pathlib.Path("workdirs/train-photos")
  (tmp_path / "train").touch()
  assert default("train:photos") == default("configs/train.py:photos") == plain
  (tmp_path / "configs").mkdir()
  (tmp_path / "configs/train.py").touch()
  assert default("train:photos") == plain
  own = default("configs/train.py:photos")
  assert own.name.startswith("train-photos-")
  assert own == default(f"{tmp_path}/configs/train.py:photos")
  monkeypatch.chdir(INSTALLED.parent)
  assert default("configs/train.py:photos") == plain


@pytest.mark.parametrize("path", ["./vit_digits", "vit_digits.py", "configs/vit_digits", ""])
def test_a_path_is_left_alone(path):
  assert path_of_recipe(path) == path


@pytest.mark.parametrize("argument", ["", ":R50x1,pets"])
def test_the_folder_of_a_run_is_that_of_the_recipe_in_configs(argument):
  assert default(f"hyperrule{argument}") == default(f"configs/hyperrule.py{argument}")


def test_an_unknown_name():
  with pytest.raises(ConfigError, match="no recipe vit_digit; nearest: vit_digits"):
    load("vit_digit")
