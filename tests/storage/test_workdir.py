"""The run's folder: lock and config."""

import json
import os
import subprocess
import sys

import pytest

from vit_jax import config as c
from vit_jax.storage import workdir


def test_a_second_run_is_refused_while_the_first_lives(tmp_path):
  holder = (
    "import pathlib, sys\nfrom vit_jax.storage import workdir\n"
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
    pytest.raises(c.ConfigError, match=r"cannot be written to: .* \(.*/lock\)"),
    workdir.locked(tmp_path, first=True),
  ):
    pass
