"""The run's folder: lock and config."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from tests import programs, test_checkpoint
from vit_jax import config as c
from vit_jax import workdir


def test_a_second_run_is_refused_while_the_first_lives(tmp_path):
  holder = (
    "import pathlib, sys\nfrom vit_jax import workdir\n"
    f"with workdir.locked(pathlib.Path({str(tmp_path)!r}), first=True):\n"
    "  print('locked', flush=True)\n  sys.stdin.read()\n"
  )
  first = subprocess.Popen(
    [sys.executable, "-c", holder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
  )
  with first:
    assert first.stdout.readline() == "locked\n"
    with (
      pytest.raises(c.ConfigError, match="in use by another run"),
      workdir.locked(tmp_path, first=True),
    ):
      pass
    first.kill()
    first.wait()
    with workdir.locked(tmp_path, first=True):  # the lock of a killed run is free
      assert (tmp_path / "lock").exists()


def test_a_workdir_that_cannot_be_made(tmp_path):
  (tmp_path / "file").write_text("")
  folder = tmp_path / "file" / "run"
  with (
    pytest.raises(c.ConfigError, match="cannot be written to"),
    workdir.locked(folder, first=True),
  ):
    pass


def test_config_json_is_the_whole_config(tmp_path):
  config = c.Config(batch_size=8, duration=c.Duration(epochs=2))
  workdir.write_config(tmp_path, config)
  assert c.from_dict(json.loads((tmp_path / "config.json").read_text())) == config


def test_a_pipe_in_the_place_of_the_lock_is_refused_and_not_waited_for(tmp_path):
  os.mkfifo(tmp_path / "lock")
  with (
    pytest.raises(c.ConfigError, match="cannot be written to"),
    workdir.locked(tmp_path, first=True),
  ):
    pass


@pytest.mark.parametrize(
  ("name", "message"),
  [
    ("a[0]", r"holds \["),
    ("a*b", r"holds \*"),
    ("a?b", r"holds \?"),
    ("a\\b", r"holds \\"),
    ("a\udce9", "is not UTF-8"),
    ("/".join(["d" * 200] * 19), r"of 3\d{3} bytes is too long"),
  ],
)
def test_a_path_below_which_no_checkpoint_could_be_saved_is_refused(name, message):
  with pytest.raises(c.ConfigError, match=message):
    workdir.check(pathlib.Path("/runs") / name / "run")


@pytest.mark.parametrize("name", ["\u00e9 \u00b2", " a%20%s'b\"c`d$HOME{x}#b&c:d\n "])
def test_checkpoints_below_any_other_path_come_back(tmp_path, name):
  folder = tmp_path / name
  workdir.check(folder)
  test_checkpoint.saved(folder, 7)
  assert int(test_checkpoint.restore(folder).step) == 7


@pytest.mark.parametrize("locale", ["C", "POSIX"])
def test_a_locale_without_utf8_makes_no_other_folder(tmp_path, locale):
  script = tmp_path / "say.py"
  script.write_text(
    "import pathlib, sys\nfrom vit_jax import console, workdir\nconsole.in_utf8()\n"
    "workdir.check(pathlib.Path(sys.argv[1]))\nprint(ascii(sys.argv[1]))\n"
  )
  env = dict(LC_ALL=locale, PYTHONUTF8="0", PYTHONCOERCECLOCALE="0", PYTHONPATH=str(programs.ROOT))
  result = programs.run([sys.executable, script, tmp_path / "\u00e9"], **env)
  assert result.stdout.strip() == ascii(str(tmp_path / "\u00e9")), result.stderr
