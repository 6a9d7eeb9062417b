"""Damaged workdirs: the same command goes on to the same bits, or says in a sentence why not."""

import os
import random
import shutil

import pytest

from tests import programs
from tests.ends import assert_equal_ends
from tests.faults import faulty
from tests.torture import damage
from vit_jax.storage import checkpoint, metrics_log

CASES = (0, 300)  # storage/test_damage.py and others do so in every test run


def vanish(path, rng):
  """The file is gone."""
  path.unlink()


def become_folder(path, rng):
  """A folder has its name."""
  path.unlink()
  path.mkdir()


def become_pipe(path, rng):
  """A pipe that nobody writes into has its name."""
  path.unlink()
  os.mkfifo(path)


def rewrite(kind):
  """Its bytes are damaged."""

  def act(path, rng):
    path.write_bytes(kind(path.read_bytes() or b"\0", rng))

  act.__name__ = kind.__name__
  return act


HARMS = (*(rewrite(kind) for kind in damage.KINDS), vanish, become_folder, become_pipe)

IN_THE_WAY = (become_folder, become_pipe)  # of what the program itself writes there


def cases(count: int):
  """(number, harm): the file is one of the workdir's, by the number."""
  return [
    (f"{number}-{HARMS[number % len(HARMS)].__name__}", (number, HARMS[number % len(HARMS)]))
    for number in range(count)
  ]


@pytest.fixture(scope="module")
def half(tmp_path_factory):
  """A workdir whose run was stopped half-way."""
  workdir = tmp_path_factory.mktemp("half") / "run"
  assert faulty.run("signal_in:evaluation", workdir).returncode == 75
  return workdir


def test_goes_on_or_says_why_not(case, half, uninterrupted, tmp_path):
  number, harm = case
  workdir, rng = tmp_path / "run", random.Random(number)
  shutil.copytree(half, workdir)
  files = sorted(path for path in workdir.rglob("*") if path.is_file())
  harmed = rng.choice(files)
  harm(harmed, rng)
  result = programs.run(programs.digits(workdir, *faulty.COMMON), timeout=300)
  output = f"{harmed.relative_to(workdir)}: {result.stdout}{result.stderr}"
  assert "Traceback" not in output, output
  if result.returncode in (1, 2):
    assert harm in IN_THE_WAY, output
    assert str(harmed) in programs.message(result)
    harmed.rmdir() if harmed.is_dir() else harmed.unlink()
    result = programs.run(programs.digits(workdir, *faulty.COMMON), timeout=300)
  assert result.returncode == 0, output
  lost = harmed.name == metrics_log.METRICS  # what was measured before cannot be measured again
  after = max(checkpoint.available(half)) if lost else 0
  assert_equal_ends(workdir, uninterrupted, logged_after=after)
