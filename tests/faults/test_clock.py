"""A clock that jumps changes nothing: neither the result nor the measured speed. A real process."""

from tests.ends import assert_equal_ends
from tests.faults import faulty
from vit_jax.storage import metrics_log


def test_a_jumping_clock_changes_nothing(uninterrupted, tmp_path):
  result = faulty.run("clock", tmp_path, anew=True)  # libraries must not have seen the clock
  assert result.returncode == 0, result.stderr
  assert_equal_ends(tmp_path, uninterrupted)
  lines = [line for line in metrics_log.read(tmp_path) if "loss" in line]
  assert len(lines) == 10
  for line in lines:
    assert 0 < line["step_seconds"] < 60
    assert line["images_per_second"] == 32 / line["step_seconds"]
    assert 0 <= line["eta_seconds"] < 60 * 40
    assert 0 <= line["data/input_wait"] <= 1
