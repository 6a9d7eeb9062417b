"""What the tests of faults compare with."""

import os

import pytest

from tests import programs
from tests.faults import faulty


@pytest.fixture(scope="session")
def uninterrupted(tmp_path_factory):
  """The workdir of a run that nothing happens to; its stdout is full, and its stderr broken."""
  workdir = tmp_path_factory.mktemp("uninterrupted")
  read, broken = os.pipe()
  os.close(read)
  outputs = [os.open("/dev/full", os.O_WRONLY), broken]
  _, _, module, *flags = programs.digits(workdir, *faulty.COMMON)
  run = programs.fork_server().start(module, flags, programs.environment(), outputs)
  for number in outputs:
    os.close(number)
  assert run.wait(120) == 0
  return workdir
