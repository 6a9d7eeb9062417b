"""A run on a CPU restarts itself with huge pages; no other run does."""

import os
import sys

import pytest

from tests import programs
from vit_jax.process import machine


@pytest.fixture
def started(monkeypatch, tmp_path):
  """The commands that took the place of this process; no variable is set, /dev is empty."""
  commands = []
  monkeypatch.setattr(os, "execv", lambda *command: commands.append(command))
  for name in ("JAX_PLATFORMS", machine.VARIABLE):
    monkeypatch.setenv(name, "")  # so that what the code sets is taken back, too
    monkeypatch.delenv(name)
  return commands


@pytest.mark.parametrize(
  ("variables", "files", "again"),
  [
    ({}, [], True),
    ({}, ["null", "vfio/vfio"], True),
    *(({}, [name], False) for name in ("accel0", "vfio/7", "nvidia0", "kfd", "dxg")),
    ({"JAX_PLATFORMS": "cpu"}, ["nvidia0"], True),
    ({"JAX_PLATFORMS": "cuda,cpu"}, [], False),
    ({"GLIBC_TUNABLES": ""}, [], False),
    ({"GLIBC_TUNABLES": "glibc.malloc.check=3"}, [], False),
  ],
)
def test_only_what_computes_on_a_cpu_starts_again(
  started, monkeypatch, tmp_path, variables, files, again
):
  for name in files:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
  for name, value in variables.items():
    monkeypatch.setenv(name, value)
  machine.ask_for_huge_pages(tmp_path)
  assert started == ([(sys.executable, sys.orig_argv)] if again else [])
  assert (os.environ.get(machine.VARIABLE) == machine.VALUE) == again
  machine.ask_for_huge_pages(tmp_path)
  assert len(started) == again  # not twice


def test_the_main_program_starts_again_with_huge_pages(monkeypatch, tmp_path):
  monkeypatch.delenv(machine.VARIABLE, raising=False)
  recipe = tmp_path / "tells.py"
  recipe.write_text(f"import os, sys\nsys.exit(os.environ.get('{machine.VARIABLE}'))\n")
  result = programs.run([*programs.MAIN, f"--config={recipe}"], anew=True)
  assert result.stderr.endswith(f"SystemExit: {machine.VALUE}.\n")
  assert result.stdout == ""
