"""What the tests of faults compare with."""

import pytest

from tests.faults import faulty


@pytest.fixture(scope="session")
def uninterrupted(tmp_path_factory):
  """The workdir of a run that nothing happens to."""
  workdir = tmp_path_factory.mktemp("uninterrupted")
  faulty.resume(workdir)
  return workdir
