"""Whatever a user's Python file does, it ends in one sentence that names the file and the line."""

import os

import pytest
from absl.testing import flagsaver

from vit_jax.config import ConfigError, command_line, recipe_file

ENDS = [
  ("x = 1\nimport sys\nsys.exit(0)", r"\(line 3\): SystemExit: 0"),
  ("raise KeyboardInterrupt", r"\(line 1\): KeyboardInterrupt\."),
  ("class Odd(BaseException): pass\nraise Odd('why')", r"\(line 2\): Odd: why"),
  ("\nx = = 1", r"\(line 2\): SyntaxError"),
  ("raise MemoryError", r"\(line 1\): MemoryError\."),
  ("def f(): f()\nf()", r"\(line 1\): RecursionError"),
]


@pytest.mark.parametrize(("text", "said"), ENDS)
def test_a_file_that_fails(tmp_path, text, said):
  path = tmp_path / "recipe.py"
  path.write_text(text)
  with pytest.raises(ConfigError, match=r"recipe\.py cannot be run " + said):
    recipe_file.run(str(path))


def test_a_recipe_that_ends_the_program_is_no_success(tmp_path, capsys):
  path = tmp_path / "recipe.py"
  path.write_text("import sys\ndef get_config():\n  sys.exit(0)\n")
  with flagsaver.flagsaver(), pytest.raises(SystemExit) as ended:
    command_line.parse(["vit_jax", f"--config={path}"])
  assert ended.value.code == 2
  assert f"{path} cannot be run (line 3): SystemExit: 0." in capsys.readouterr().err


@pytest.mark.parametrize(
  ("text", "said"),
  [
    ("", "defines no function get_config"),
    ("get_config = 3", "defines no function get_config"),
    ("def get_config(): pass", "get_config returned NoneType; return"),
    ("class E(Exception):\n  def __str__(self): 1 / 0\nraise E", r"cannot be run \(line 3\): E\."),
  ],
)
def test_what_is_no_recipe(tmp_path, text, said):
  path = tmp_path / "recipe.py"
  path.write_text(text)
  with pytest.raises(ConfigError, match=said):
    recipe_file.settings_of(str(path), "")


def test_what_is_no_file_is_not_waited_for(tmp_path):
  os.mkfifo(tmp_path / "fifo")
  for path, kind in ((tmp_path / "fifo", "a FIFO"), (tmp_path, "a folder")):
    with pytest.raises(ConfigError, match=f"cannot be run: .*It is {kind}"):
      recipe_file.settings_of(str(path), "")
