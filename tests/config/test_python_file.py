"""Whatever a user's Python file does, it ends in one sentence that names the file and the line."""

import os

import pytest

from vit_jax.config import ConfigError, recipe_file

ODD = "class E(Exception):\n  def __str__(self): 1 / 0\nraise E"


@pytest.mark.parametrize(
  ("text", "said"),
  [
    ("x = 1\nimport sys\nsys.exit(0)", r"cannot be run \(line 3\): SystemExit: 0"),
    ("def get_config():\n  raise SystemExit(0)", r"cannot be run \(line 2\): SystemExit: 0"),
    ("class E(BaseException): pass\nraise E('why')", r"cannot be run \(line 2\): E: why"),
    ("\nx = = 1", r"cannot be run \(line 2\): SyntaxError"),
    ("raise MemoryError", r"cannot be run \(line 1\): MemoryError\."),
    ("def f(): f()\nf()", r"cannot be run \(line 1\): RecursionError"),
    (ODD, r"cannot be run \(line 3\): E\."),
    ("", "defines no function get_config"),
    ("get_config = 3", "defines no function get_config"),
    ("def get_config(): pass", "get_config returned NoneType; return"),
  ],
)
def test_a_file_that_fails_or_is_no_recipe(tmp_path, text, said):
  path = tmp_path / "recipe.py"
  path.write_text(text)
  with pytest.raises(ConfigError, match=rf"recipe\.py:? {said}"):
    recipe_file.settings_of(str(path), "")


def test_ctrl_c_is_no_error_of_the_file(tmp_path):
  path = tmp_path / "recipe.py"
  path.write_text("def get_config():\n  raise KeyboardInterrupt")
  with pytest.raises(KeyboardInterrupt):
    recipe_file.settings_of(str(path), "")


def test_what_is_no_file_is_not_waited_for(tmp_path):
  os.mkfifo(tmp_path / "fifo")
  for path, kind in ((tmp_path / "fifo", "a FIFO"), (tmp_path, "a folder")):
    with pytest.raises(ConfigError, match=f"cannot be run: .*It is {kind}"):
      recipe_file.settings_of(str(path), "")
