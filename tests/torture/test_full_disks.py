"""A disk that is full for a while: the run goes on for the time that is set, to the same bits."""

import random

from tests.ends import assert_equal_ends
from tests.faults import faulty

CASES = (0, 60)  # faults/test_faults.py fills disks in every test run
SECONDS = (0, 3)  # config.checkpoint.retry_seconds
SAVED = (10, 20, 30, 40)  # steps


def cases(count: int):
  """(seconds, first step saved on a full disk, first that is not, largest file in bytes)."""
  found = []
  for number in range(count):
    rng = random.Random(number)
    first, last = sorted(rng.sample((*SAVED, 1000), k=2))
    seconds, size = SECONDS[number % 2], rng.choice((0, 1, 100, 2500))
    found.append((f"{number}-{seconds}-{first}-{last}-{size}", (seconds, first, last, size)))
  return found


def test_stops_or_goes_on_as_set(case, uninterrupted, tmp_path):
  seconds, first, last, size = case
  setting = f"--config.checkpoint.retry_seconds={seconds}"
  result = faulty.run(f"full:{first}-{last}-{size}", tmp_path, setting)
  output = result.stdout + result.stderr
  assert "Traceback" not in output, output
  lost = not seconds or last > SAVED[-1]
  assert result.returncode == (1 if lost else 0), output
  said = [line for line in result.stderr.splitlines() if line.startswith("vit_jax: ")]
  assert len(said) == lost, output
  faulty.resume(tmp_path)
  assert_equal_ends(tmp_path, uninterrupted)
