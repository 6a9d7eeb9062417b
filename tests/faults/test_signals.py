"""SIGTERM, or SIGHUP, in the middle of an evaluation and of a save. Real processes.

While compiling and while training: tests/test_resume.py. To one of several: tests/test_hosts.py.
"""

import pytest

from tests.ends import assert_equal_ends
from tests.faults import faulty
from vit_jax.storage import checkpoint


@pytest.mark.parametrize("place", ["save", "evaluation-SIGHUP"])
def test_a_signal_stops_the_run_with_its_state_saved(uninterrupted, tmp_path, place):
  result = faulty.run(f"signal_in:{place}", tmp_path)
  assert result.returncode == 75, result.stderr
  stopped = checkpoint.available(tmp_path)[-1]
  assert f"Stopped by a signal after step {stopped}" in result.stdout
  if place.startswith("evaluation"):
    assert stopped == 20
    assert "test: top-1" not in result.stdout  # given up, to be made good
  assert f"resuming after step {stopped}" in faulty.resume(tmp_path)
  assert_equal_ends(tmp_path, uninterrupted)
