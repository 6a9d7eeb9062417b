"""A run that does not move is ended; one that does is left alone. Real processes."""

import sys

import pytest

from tests import programs
from vit_jax.config import Config
from vit_jax.hosts import heartbeat

PROGRAM = """
import pathlib, sys, time
import jax
from vit_jax.watchdog import Watchdog

def stuck():
  time.sleep(60)

def lost():
  raise jax.errors.JaxRuntimeError("connection closed by peer\\nand more")

limit = float(sys.argv[2])
with Watchdog(pathlib.Path(sys.argv[1]), limit=limit, process=0, processes=2) as dog:
  for step in range(8):
    dog.guarded(lambda: dog.beat(f"step {step}"))
    time.sleep(0.25)
  if sys.argv[3] == "stuck":
    stuck()
  elif sys.argv[3] == "lost":
    dog.guarded(lost)
print("came to its end")
"""


def run(folder, limit, ending):
  return programs.run([sys.executable, "-c", PROGRAM, folder, limit, ending], timeout=30)


def test_a_stuck_process_ends_and_says_where_it_was(tmp_path):
  result = run(tmp_path, 1, "stuck")
  assert result.returncode == 1
  assert "process 0 has got no further than step 7 for over 1 s" in result.stderr
  assert "in stuck" in result.stderr  # the stack of the main thread
  assert "process 1: not heard of" in result.stderr
  assert "came to its end" not in result.stdout


@pytest.mark.parametrize("limit", [1, 0])
def test_a_process_that_moves_comes_to_its_end(tmp_path, limit):
  result = run(tmp_path, limit, "well")  # of two seconds, twice the limit
  assert result.returncode == 0, result.stderr
  assert "came to its end" in result.stdout
  assert limit == 0 or "at step 7" in (tmp_path / "heartbeats" / "0").read_text()


def test_a_computation_that_failed_ends_the_process(tmp_path):
  result = run(tmp_path, 1, "lost")
  assert result.returncode == 1
  assert "process 0 failed at step 7: connection closed by peer. Start" in result.stderr


@pytest.mark.parametrize(("limit", "silence"), [(10, 40), (1800, 100), (0, 100)])
def test_silence_after_which_a_process_is_taken_for_dead(limit, silence):
  assert heartbeat(limit) == silence
  assert heartbeat(Config().stall_seconds) == 100
