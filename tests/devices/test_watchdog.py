"""A run without progress is ended; a run that makes progress is not. Real processes."""

import os
import sys

import jax
import pytest

from tests import programs
from vit_jax.config import Config, RunError
from vit_jax.devices.hosts import heartbeat
from vit_jax.devices.watchdog import SILENCE, Sign, Watchdog, culprit

PROGRAM = """
import json, pathlib, sys, time
import jax
from vit_jax.devices.watchdog import Watchdog

def stuck():
  time.sleep(60)

def lost():
  raise jax.errors.JaxRuntimeError("connection closed by peer\\nand more")

def alone():
  for step in range(8, 30):
    dog.beat(f"step {step}")
    time.sleep(0.25)

folder, limit, silence = pathlib.Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[4])
with Watchdog(folder / "heartbeats", limit=limit, silence=silence, process=0, processes=2) as dog:
  for step in range(8):
    with dog.guarded():
      dog.beat(f"step {step}")
    if sys.argv[3] == "alone" and step < 6:
      (folder / "heartbeats").mkdir(exist_ok=True)
      told = dict(looks=step, beats=step + 1, words=f"elsewhere, at step {step}")
      (folder / "heartbeats" / "1").write_text(json.dumps(told))
    time.sleep(0.25)
  if sys.argv[3] == "alone":
    alone()
  if sys.argv[3] == "stuck":
    stuck()
  elif sys.argv[3] == "lost":
    with dog.guarded():
      lost()
print("came to its end")
"""


def run(folder, limit, ending, silence=0):
  command = [sys.executable, "-c", PROGRAM, folder, limit, ending, silence]
  return programs.run(command, timeout=30)


def test_a_stuck_process_ends_and_says_where_it_was(tmp_path):
  result = run(tmp_path, 1, "stuck")
  assert result.returncode == 1
  assert "process 0 has made no progress since step 7 for over 1 s" in result.stderr
  assert "in stuck" in result.stderr  # the stack of the main thread
  assert "process 1: no heartbeat" in result.stderr
  assert "came to its end" not in result.stdout


def test_a_folder_that_hangs_keeps_no_watchdog_from_its_watch(tmp_path):
  (tmp_path / "heartbeats").mkdir()
  os.mkfifo(tmp_path / "heartbeats" / "0.tmp")  # a writer blocks until there is a reader
  result = run(tmp_path, 1, "stuck")
  assert result.returncode == 1
  assert "process 0 has made no progress since step 7" in result.stderr


def test_a_process_that_falls_silent_ends_the_others(tmp_path):
  result = run(tmp_path, 4, "alone", silence=1.5)
  assert result.returncode == 1
  assert "process 1 has sent no heartbeat for over 1.5 s" in result.stderr
  assert "process 1: elsewhere, at step 5; heard" in result.stderr


@pytest.mark.parametrize(
  "left",
  [
    '{"looks": 7, "beats": 10, "words": "of an earlier run, at step 9"}',
    "7 of an earlier release, at step 9",
    '{"looks": 7}',
    "[7]",
  ],
)
def test_a_process_that_sent_no_heartbeat_yet_or_has_ended_is_not_silent(tmp_path, left):
  (tmp_path / "heartbeats").mkdir()
  (tmp_path / "heartbeats" / "1").write_text(left)
  result = run(tmp_path, 4, "well", silence=1)
  assert result.returncode == 0, result.stderr
  assert not (tmp_path / "heartbeats" / "0").exists()


@pytest.mark.parametrize("limit", [1, 0])
def test_a_process_that_moves_comes_to_its_end(tmp_path, limit):
  result = run(tmp_path, limit, "well")  # takes two seconds, twice the limit
  assert result.returncode == 0, result.stderr
  assert "came to its end" in result.stdout


def test_a_computation_that_failed_ends_the_process(tmp_path):
  result = run(tmp_path, 1, "lost", silence=1)
  assert result.returncode == 1
  assert (
    "process 0 failed at step 7: connection closed by peer. Silent for longest: process 1 ("
    in result.stderr
  )
  assert "in lost\n" in result.stderr  # where the computation was asked for
  assert "and more" in result.stderr


def signs(*told):
  """Signs at time 100: for each process its beats, and the seconds since its last heartbeat."""
  return {p: Sign(beats, f"at step {beats}", 100.0 - s, 5) for p, (beats, s) in enumerate(told)}


@pytest.mark.parametrize(
  ("heard", "sentence"),
  [
    (signs((9, 1), (9, 2), (9, 1)), "No process is silent or behind the others."),
    (signs((9, 1), (8, 2), (9, 1)), "Furthest behind: process 1 (at step 8)."),
    (
      signs((7, 1), (7, 2), (8, 2), (9, 1)),
      "Furthest behind: process 0 (at step 7), process 1 (at step 7).",
    ),
    # A dead process may be further than a process that it holds up, or that ended.
    (signs((8, 1), (9, 2), (9, 12)), "Silent for longest: process 2 (at step 9; 12 s)."),
    (signs((8, 1), (9, 12), (9, 25)), "Silent for longest: process 2 (at step 9; 25 s)."),
    # The second process ended well and removed its file.
    (signs((9, 1), (0, 50)), "No process is silent or behind the others."),
    (signs((9, 1)), ""),
  ],
)
def test_the_process_that_holds_the_others_up_is_named(heard, sentence):
  assert culprit(heard, 0, 100.0, silence=10.0) == sentence


def test_nobody_is_named_where_the_folder_of_heartbeats_does_not_answer():
  heard = signs((9, 50), (9, 52), (9, 51))
  assert "does not answer" in culprit(heard, 0, 100.0, silence=10.0)


def test_a_process_that_never_sent_a_heartbeat_is_named():
  heard = signs((9, 1)) | {1: Sign(0, "no heartbeat", 40.0, 1)}
  named = "Silent for longest: process 1 (no heartbeat; 60 s)."
  assert culprit(heard, 0, 100.0, silence=10.0) == named


@pytest.mark.parametrize("processes", [1, 2])
def test_too_little_memory_is_said_in_a_sentence(tmp_path, processes):
  dog = Watchdog(tmp_path, limit=9, silence=9, process=0, processes=processes)
  dog.beat("step 3")
  said = r"at step 3\. Raise config\.accumulation.*allocating 9 bytes"
  with pytest.raises(RunError, match=said), dog.guarded():
    raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.")


@pytest.mark.parametrize(("limit", "silence"), [(10, 40), (1800, 300), (0, 300)])
def test_silence_after_which_a_process_is_taken_for_dead(limit, silence):
  assert heartbeat(limit) == silence
  assert heartbeat(Config().stall_seconds) == 300 > 2 * SILENCE
