"""A disk that is full for a while: the run stops or goes on as asked; the same bits in the end."""

import random

from tests.ends import assert_equal_ends
from tests.faults import faulty

CASES = (1, 60)
ACTIONS = ("stop", "go_on")
SAVED = (10, 20, 30, 40)  # steps


def cases(count: int):
  """(action, first step that is saved on a full disk, first that is not, largest file in bytes)."""
  found = []
  for number in range(count):
    rng = random.Random(number)
    first, last = sorted(rng.sample((*SAVED, 1000), k=2))
    action, size = ACTIONS[number % 2], rng.choice((0, 1, 100, 2500))
    found.append((f"{number}-{action}-{first}-{last}-{size}", (action, first, last, size)))
  return found


def test_stops_or_goes_on_as_asked(case, uninterrupted, tmp_path):
  action, first, last, size = case
  setting = f"--config.checkpoint.on_failure={action}"
  result = faulty.run(f"full:{first}-{last}-{size}", tmp_path, setting)
  output = result.stdout + result.stderr
  assert "Traceback" not in output, output
  lost = action == "stop" or last > SAVED[-1]
  assert result.returncode == (1 if lost else 0), output
  said = [line for line in result.stderr.splitlines() if line.startswith("vit_jax: ")]
  assert len(said) == lost, output
  faulty.resume(tmp_path)
  assert_equal_ends(tmp_path, uninterrupted)
