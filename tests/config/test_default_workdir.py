"""The folder of a run without --workdir."""

import json
import os
import pathlib
import types

import pytest

from vit_jax import main
from vit_jax.config import ConfigError, default_workdir
from vit_jax.config.default_workdir import default, default_folder


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)


def begin(folder, *recipes):
  """A folder that runs of recipes have written to."""
  folder = pathlib.Path(folder)
  (folder / "checkpoints").mkdir(parents=True)
  commands = [{"command": ["main.py", f"--config={recipe}"]} for recipe in recipes]
  (folder / "starts.jsonl").write_text("".join(json.dumps(start) + "\n" for start in commands))


@pytest.mark.parametrize(
  ("recipe", "folder"),
  [
    ("configs/vit_digits.py", "vit_digits"),
    ("./configs/vit_digits.py", "vit_digits"),
    ("configs/vit_l16_jft.py:14", "vit_l16_jft-14"),
    ("configs/train.py:photos", "train-photos"),
    ("configs/train.py:a_b", "train-a_b"),
    ("configs/train.py:größe, 2", "train-größe, 2"),
    ("configs/train.py:tfds:pets", "train-tfds:pets"),
  ],
)
def test_plain_cases_have_plain_names(recipe, folder):
  assert str(default(recipe)) == f"workdirs/{folder}"
  assert default(
    os.path.abspath("configs") + recipe[recipe.index("/vit" if "vit" in recipe else "/train") :]
  ) == default(recipe)


ARGUMENTS = [
  *("a/b", "a_b", "a//b", "/a_b", "a", "a\nb", "a\tb", "..", "../..", "\udcff", "x/y", "x y"),
  *("a/" * n + "b" for n in (100, 127, 128, 2000)),
  *("ß" * n for n in (95, 96, 97, 98, 128, 256)),
]
PATHS = [
  *("configs/train-a.py", "other/train.py", "/elsewhere/train.py", "configs/sub/train.py"),
  *("configs/..py", "configs/...py", "..py", "../..py", "configs/.py", "train.py", "configs/x.py"),
  *("configs/train.txt", "configs/train.py.py", "configs/train.x.py", "configs/train"),
]
LIKE_ANOTHER = "configs/train.py:" + default("configs/train.py:x/y").name.removeprefix("train-")
RECIPES = [*(f"configs/train.py:{argument}" for argument in ARGUMENTS), *PATHS, LIKE_ANOTHER]


def test_no_two_recipes_have_one_folder():
  pathlib.Path("workdirs").mkdir()
  folders = [default(recipe) for recipe in RECIPES]
  assert [default_folder(recipe) for recipe in RECIPES] == folders
  assert len({*folders}) == len(RECIPES)
  assert all(folder.parent == default_workdir.FOLDER for folder in folders)
  assert all(folder.name.strip(".") and len(os.fsencode(folder.name)) <= 200 for folder in folders)
  assert all(folder.name.isprintable() and folder.name[0] not in ".-" for folder in folders)
  for folder in folders:
    folder.mkdir(parents=True)


def test_the_folder_of_another_recipe_is_refused():
  begin("workdirs/train-a_b", "configs/train.py:a/b")
  with pytest.raises(ConfigError, match=r"holds a run of configs/train\.py:a/b; give this run"):
    default_folder("configs/train.py:a_b")
  begin("workdirs/my", "my.py", "configs/my.py")  # once with --workdir
  assert default_folder("configs/my.py") == pathlib.Path("workdirs/my")


OWN = ("configs/train.py:photos", "workdirs/train-photos")
BEFORE = [  # what is given now, the recipe that 0.2.0 recorded, the folder that it chose
  (OWN[0], *OWN),
  ("train:photos", "train:photos/", "workdirs/train-photos_-b93bd382b1"),
  ("finetune:w,photos", "finetune:w/,photos", "workdirs/finetune-w_,photos-1e6685f9df"),
  ("finetune:w,photos", "finetune:w,photos/", "workdirs/finetune-w,photos_-25e3078ec5"),
  ("finetune:w,photos", "finetune:w/,photos/", "workdirs/finetune-w_,photos_-a0471f5b06"),
]


@pytest.fixture
def own_recipe(here):
  """A file of the current folder that is named as an installed recipe."""
  pathlib.Path("configs").mkdir()
  pathlib.Path("configs/train.py").touch()


@pytest.mark.parametrize(("recipe", "recorded", "folder"), BEFORE)
def test_a_run_goes_on_in_the_folder_that_version_0_2_0_chose(own_recipe, recipe, recorded, folder):
  begin(folder, recorded)
  assert default_folder(recipe) == pathlib.Path(folder) != default(recipe)
  begin(default(recipe), recipe)
  assert default_folder(recipe) == default(recipe)


@pytest.mark.parametrize(("recipe", "recorded", "folder"), BEFORE)
@pytest.mark.parametrize("other", [["configs/mine.py:photos"], []])
def test_another_run_in_that_folder_is_left_alone(own_recipe, recipe, recorded, folder, other):
  begin(folder, *other)
  assert default_folder(recipe) == default(recipe)


def test_that_a_run_goes_on_in_an_earlier_folder_is_said(own_recipe, capsys, monkeypatch):
  recipe, folder = OWN
  begin(folder, recipe)
  monkeypatch.setattr(main, "_WORKDIR", types.SimpleNamespace(value=None))
  assert main.folder_of(recipe) == pathlib.Path(folder)
  (line,) = capsys.readouterr().out.splitlines()
  assert line.startswith(f"Goes on in {folder}, where version 0.2.0 began this run")
  assert str(default(recipe)) in line
  main.folder_of("configs/mine.py")
  assert not capsys.readouterr().out


@pytest.mark.parametrize(
  "content", ["", "{}\n", '{"command": 3}\n', '{"command": ["x"]}\n', "\0\n"]
)
def test_a_run_that_does_not_say_its_recipe_goes_on_in_its_plain_folder(content):
  begin("workdirs/vit_digits")
  pathlib.Path("workdirs/vit_digits/starts.jsonl").write_text(f"{content}\n")
  assert default_folder("configs/vit_digits.py") == pathlib.Path("workdirs/vit_digits")
