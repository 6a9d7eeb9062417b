"""A run without progress is ended, in a process of its own; a run that makes progress is not."""

import errno
import math
import resource
import sys
import threading
import time
import types

import jax
import pytest

from tests import programs
from vit_jax.config import RunError
from vit_jax.devices import hosts, watchdog
from vit_jax.devices.watchdog import SILENCE, Heartbeat, Watchdog, culprit
from vit_jax.storage import files

PROGRAM = """
import json, pathlib, sys, time
import jax
from vit_jax.devices.watchdog import Watchdog
from vit_jax.storage import files

def stuck():
  time.sleep(60)

def lost():
  with dog.guarded():
    raise jax.errors.JaxRuntimeError("connection closed by peer\\nand more")

def alone():
  while True:
    dog.beat("later")
    time.sleep(0.25)

folder, ending, limit, silence = pathlib.Path(sys.argv[1]), sys.argv[2], *map(float, sys.argv[3:])
if ending == "stuck":
  files.make_folder = lambda _: stuck()  # the folder hangs, too
with Watchdog(folder, limit=limit, silence=silence, process=0, processes=2) as dog:
  for step in range(4):
    dog.beat(f"step {step}")
    if ending == "alone":
      folder.mkdir(exist_ok=True)
      heartbeat = dict(looks=step, beats=step + 1, words=f"elsewhere, at step {step}")
      (folder / "1").write_text(json.dumps(heartbeat))
    time.sleep(0.25)
  {"stuck": stuck, "lost": lost, "alone": alone}[ending]()
"""


SILENT = (
  "process 1 has sent no heartbeat for over 1.5 s",
  "process 1: elsewhere, at step 3; heard",
  "Silent for longest: process 1 (",
)
LOST = (
  "process 0 failed at step 3: connection closed by peer. Silent for longest: process 1 (",
  "in lost\n",  # where the computation was asked for
  "and more",
)


@pytest.mark.parametrize(
  ("ending", "limit", "silence", "words"),
  [
    ("stuck", 1, 0, ("process 0 has made no progress since step 3 for over 1 s", "in stuck\n")),
    ("alone", 4, 1.5, SILENT),
    ("lost", 1, 1, LOST),
  ],
)
def test_a_process_that_makes_no_progress_ends_and_says_why(
  tmp_path, ending, limit, silence, words
):
  command = [sys.executable, "-c", PROGRAM, tmp_path / "heartbeats", ending, limit, silence]
  result = programs.run(command, timeout=30)
  assert result.returncode == 1
  assert [sentence for sentence in words if sentence not in result.stderr] == []


@pytest.mark.parametrize(
  ("left", "limit", "steps"),
  [
    ('{"looks": 7, "beats": 10, "words": "of an earlier run, at step 9"}', 0, 8),
    ("7 of an earlier release, at step 9", 0, 8),
    ('{"looks": 7}', 0, 8),
    ("[7]", 2, 24),
  ],
)
def test_a_process_that_moves_is_not_ended_nor_for_one_that_never_told_of_itself(
  tmp_path, monkeypatch, left, limit, steps
):
  monkeypatch.setattr(watchdog, "before_abort", lambda speak: None)
  (tmp_path / "1").write_text(left)
  with Watchdog(tmp_path, limit=limit, silence=0.3, process=0, processes=2) as dog:
    for step in range(steps):
      dog.beat(f"step {step}")
      time.sleep(0.1)
  assert not (tmp_path / "0").exists()


def test_a_process_that_ended_well_leaves_no_heartbeat_that_was_under_way(tmp_path, monkeypatch):
  under_way, write = threading.Event(), files.write_text

  def slow(*arguments):
    under_way.set()
    time.sleep(0.2)
    write(*arguments)

  monkeypatch.setattr(watchdog, "before_abort", lambda speak: None)
  monkeypatch.setattr(files, "write_text", slow)
  (tmp_path / "1").write_text("[7]")  # of a process that goes on
  with Watchdog(tmp_path, limit=0, silence=9, process=0, processes=2):
    under_way.wait()
  assert not (tmp_path / "0").exists()
  time.sleep(0.3)
  assert not (tmp_path / "0").exists()


def listed(folder):
  """Stands for the listing of a bucket, which tells versions and no contents."""
  return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("outage", [0, 70, 130, 900])
@pytest.mark.parametrize("in_bucket", [False, True])
def test_nobody_is_ended_for_a_silence_in_which_the_folder_did_not_answer(
  tmp_path, monkeypatch, outage, in_bucket
):
  if in_bucket:
    monkeypatch.setattr(files, "listed_stamps", listed)
    monkeypatch.setattr(files, "read_bytes", None)  # n processes would send n^2 requests
  now, works, write = [0.0], [True], files.write_text

  def full(*arguments):
    if not works[0]:
      raise OSError(errno.ENOSPC, "No space left on device")
    write(*arguments)

  monkeypatch.setattr(watchdog, "time", types.SimpleNamespace(monotonic=lambda: now[0]))
  monkeypatch.setattr(files, "write_text", full)
  dogs = [
    Watchdog(tmp_path, limit=0, silence=SILENCE, process=process, processes=2) for process in (0, 1)
  ]

  def gone(seconds, first):
    """The processes that process 0 takes for gone within this time, while it and others write."""
    end, found = now[0] + seconds, []
    while now[0] < end:
      now[0] += 10.0
      for dog in dogs[:first]:
        dog._tell()
      dogs[0]._listen()
      found += dogs[0]._gone()
    return found

  assert gone(60, first=2) == []
  works[0] = False
  assert gone(outage, first=2) == []
  works[0] = True
  assert gone(30, first=1) == []  # the other one is the last to notice that it may write again
  assert gone(60, first=2) == []
  assert gone(SILENCE, first=1) == []
  assert gone(10, first=1) == [1]


def hang(*_, **__):
  time.sleep(1)
  raise OSError(errno.ETIMEDOUT, "timed out")


def test_heartbeats_in_a_bucket_are_read_at_the_end(tmp_path, monkeypatch):
  monkeypatch.setattr(files, "listed_stamps", listed)
  dogs = [Watchdog(tmp_path, limit=0, silence=9, process=p, processes=3) for p in range(2)]
  dogs[1].beat("step 1")
  for dog in dogs:
    dog._tell()
  dogs[0]._listen()
  told = [(sign.beats, sign.words.partition(", ")[2]) for sign in dogs[0]._told().values()]
  assert told == [(1, "at the start"), (2, "at step 1"), (0, "")]
  monkeypatch.setattr(watchdog, "MAX_PERIOD", 0.1)
  monkeypatch.setattr(files, "read_bytes", hang)
  assert [sign.beats for sign in dogs[0]._told().values()] == [None, None, 0]


def signs(*told):
  """Signs at time 100: for each process its beats, and the seconds since its last heartbeat."""
  return {
    p: Heartbeat(beats, f"at step {beats}", 100.0 - s, 5) for p, (beats, s) in enumerate(told)
  }


NEVER = {1: Heartbeat(0, "no heartbeat", 40.0, 1)}


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
    (
      signs((9, 1), (None, 2), (8, 1)),
      "No process is silent; how far process 1 is, cannot be read.",
    ),
    (signs((9, 1), (None, 12)), "Silent for longest: process 1 (at step None; 12 s)."),
    (signs((9, 1)) | NEVER, "Silent for longest: process 1 (no heartbeat; 60 s)."),
    (signs((9, 1)), ""),
  ],
)
def test_the_process_that_holds_the_others_up_is_named(heard, sentence):
  assert culprit(heard, 0, 100.0, silence=10.0) == sentence


def test_nobody_is_named_where_the_folder_of_heartbeats_does_not_answer():
  heard = signs((9, 50), (9, 52), (9, 51))
  assert "does not answer" in culprit(heard, 0, 100.0, silence=10.0)


@pytest.mark.parametrize(
  ("processes", "limit", "said"),
  [
    (1, None, r"at step 3\. Raise config\.accumulation.*allocating 9 bytes"),
    (2, None, r"at step 3\. Raise config\.accumulation.*allocating 9 bytes"),
    (1, 3_000_000, r"a limit \(memory, ulimit -v: 3,000,000\); raise it first\. Raise config"),
  ],
)
def test_too_little_memory_is_said_in_a_sentence(tmp_path, monkeypatch, processes, limit, said):
  if limit:
    soft = {resource.RLIMIT_AS: limit}
    monkeypatch.setattr(resource, "getrlimit", lambda number: (soft.get(number, -1), -1))
  dog = Watchdog(tmp_path, limit=9, silence=9, process=0, processes=processes)
  dog.beat("step 3")
  with pytest.raises(RunError, match=said), dog.guarded():
    raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.")


@pytest.mark.parametrize(("limit", "silence"), [(10, 120), (60, 120), (1800, 120), (0, math.inf)])
def test_silence_after_which_a_process_is_taken_for_dead(tmp_path, limit, silence):
  """A folder may show a heartbeat a minute late, whatever the limit for a step is."""
  assert watchdog.watching(limit, tmp_path)._silence == silence
  assert hosts.SILENCE > 2 * SILENCE  # JAX's, which names nobody
