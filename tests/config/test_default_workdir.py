"""The folder of a run without --workdir."""

import json
import os
import pathlib

import pytest

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


@pytest.mark.parametrize(
  "content", ["", "{}\n", '{"command": 3}\n', '{"command": ["x"]}\n', "\0\n"]
)
def test_a_run_that_does_not_say_its_recipe_goes_on_in_its_plain_folder(content):
  begin("workdirs/vit_digits")
  pathlib.Path("workdirs/vit_digits/starts.jsonl").write_text(f"{content}\n")
  assert default_folder("configs/vit_digits.py") == pathlib.Path("workdirs/vit_digits")
