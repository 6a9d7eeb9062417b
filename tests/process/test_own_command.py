"""The command that messages tell a user to type works in the folder where the user is."""

import os
import shlex
import subprocess
import sys

import pytest

from vit_jax.process import program


@pytest.fixture
def environment(tmp_path, monkeypatch):
  """The folder bin of an environment whose vit-jax prints its arguments."""
  folder = tmp_path / "my env; not yours" / "bin"
  folder.mkdir(parents=True)
  script = folder / "vit-jax"
  script.write_text('#!/bin/sh\necho "$@"\n')
  script.chmod(0o755)
  monkeypatch.setattr(sys, "executable", str(folder / "python"))
  monkeypatch.setenv("PATH", "/usr/bin:/bin")
  return folder


def test_the_name_is_enough_if_the_shell_finds_it(environment, tmp_path, monkeypatch):
  monkeypatch.setenv("PATH", f"{environment}:/usr/bin:/bin")
  assert program.own_command() == "vit-jax"
  link = tmp_path / "links"
  link.mkdir()
  (link / "vit-jax").symlink_to(environment / "vit-jax")
  monkeypatch.setenv("PATH", f"{link}:/usr/bin:/bin")
  assert program.own_command() == "vit-jax"


@pytest.mark.parametrize("inside", [True, False])
def test_the_script_is_named_if_the_shell_would_not_find_it(
  environment, tmp_path, monkeypatch, inside
):
  monkeypatch.chdir(tmp_path if inside else "/usr")
  (word,) = shlex.split(program.own_command())
  assert os.path.isabs(word) != inside
  line = f"{program.own_command()} export"
  assert subprocess.run(line, shell=True, capture_output=True, text=True).stdout == "export\n"


def test_without_a_script_python_runs_the_module(environment):
  (environment / "vit-jax").unlink()
  assert shlex.split(program.own_command())[:2] == [sys.executable, "-m"]
