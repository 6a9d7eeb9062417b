"""Items from several processes come in order; errors and the end of a process are reported.

Whole runs: tests/faults/test_workers.py. Batches: test_pipeline.py.
"""

import collections
import contextlib
import errno
import functools
import itertools
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

from vit_jax.data import workers
from vit_jax.data.workers import WorkerError, Workers


def arrays(worker, *, count, every):
  """Arrays of many sizes, some larger than a socket's buffer."""
  for number in range(worker, count, every):
    rng = np.random.default_rng(number)
    yield dict(
      number=number,
      image=rng.integers(0, 256, (number * 50_001) % 1_000_003, np.uint8),
      empty=np.zeros((0, 3), np.float32),
    )


def numbers(worker, *, every):
  return itertools.count(worker, every)


def sleeping(worker):
  """One item, and then none for a long time."""
  yield os.getpid()
  time.sleep(1000)


class Awkward(Exception):
  """An error that cannot be unpickled."""

  def __init__(self, one, two):
    super().__init__(f"{one} and {two}")


ERRORS = {
  "of the code": KeyError("a fault"),
  "of a connection that is not ours": ConnectionResetError(errno.ECONNRESET, "a fault"),
  "of a file": EOFError("a fault"),
  "not to be sent": Awkward("a fault", "another"),
}


def failing(worker, *, kind):
  yield "good"
  raise ERRORS[kind]


def leaving(worker, *, status):
  yield "good"
  os._exit(status)


def pids(made):
  return [worker._process.pid for worker in made._workers]


def alive(pid):
  """Whether a process runs: it exists and is not a zombie."""
  with contextlib.suppress(FileNotFoundError, ProcessLookupError):
    status = pathlib.Path(f"/proc/{pid}/stat").read_text()
    return status.rpartition(")")[2].split()[0] != "Z"
  return False


@pytest.mark.parametrize(("count", "processes"), [(0, 1), (1, 2), (23, 3)])
def test_items_come_whole_and_in_order(count, processes):
  make = functools.partial(arrays, count=count, every=processes)
  with contextlib.closing(Workers(make, processes)) as made:
    items = list(made)
  wanted = list(arrays(0, count=count, every=1))
  for item, one in zip(items, wanted, strict=True):
    assert item["number"] == one["number"]
    for name in ("image", "empty"):
      assert item[name].dtype == one[name].dtype
      assert item[name].flags.writeable
      np.testing.assert_array_equal(item[name], one[name])


def test_several_at_once_do_not_disturb_one_another():
  make = functools.partial(numbers, every=2)
  with contextlib.closing(Workers(make, 2)) as one, contextlib.closing(Workers(make, 2)) as other:
    assert [(next(one), next(other)) for _ in range(5)] == [(i, i) for i in range(5)]
    ended = pids(other)
    other.close()
    assert not any(map(alive, ended))
    assert next(one) == 5


def test_nothing_runs_before_the_first_item_or_after_the_end():
  made = Workers(sleeping, 2)
  assert not made._workers
  made.close()
  with pytest.raises(StopIteration):
    next(made)
  made = Workers(sleeping, 2)
  started = {next(made), next(made)}
  assert all(map(alive, started))
  begin = time.monotonic()
  made.close()
  assert time.monotonic() - begin < 5
  assert not any(map(alive, started))
  made.close()


@pytest.mark.parametrize("kind", ERRORS)
def test_an_error_is_raised_where_the_items_are_asked_for(kind):
  made = Workers(functools.partial(failing, kind=kind), 1)
  assert next(made) == "good"
  started = pids(made)
  wanted = RuntimeError if kind == "not to be sent" else type(ERRORS[kind])
  with pytest.raises(wanted, match="a fault") as raised:
    next(made)
  assert "in failing" in "".join([str(raised.value), *getattr(raised.value, "__notes__", [])])
  assert not any(map(alive, started))
  with pytest.raises(StopIteration):
    next(made)


@pytest.mark.parametrize(
  ("number", "text"),
  [
    (signal.SIGKILL, r"was killed \(SIGKILL\), .* when memory runs out"),
    (signal.SIGRTMIN + 3, "was ended by signal 37 "),
  ],
)
def test_a_worker_ended_by_a_signal_is_named(number, text):
  made = Workers(functools.partial(numbers, every=2), 2)
  next(made)
  _, last = started = pids(made)
  os.kill(last, number)
  begin = time.monotonic()
  who = rf"process 2 of 2 \(process {last}\) "
  with pytest.raises(WorkerError, match=f"{who}{text}.*config.data.workers, which is 2"):
    collections.deque(made, maxlen=0)
  assert time.monotonic() - begin < 5
  assert not any(map(alive, started))


def test_a_worker_that_leaves_by_itself_is_named():
  made = Workers(functools.partial(leaving, status=3), 1)
  assert next(made) == "good"
  with pytest.raises(WorkerError, match=r"process 1 of 1 .* ended with status 3; its messages"):
    next(made)


@pytest.mark.parametrize("size", [1, 10**6])
def test_a_worker_that_does_not_begin_is_named(monkeypatch, size):
  """The job may be larger or smaller than a socket's buffer."""
  monkeypatch.setattr(workers, "_PROGRAM", [sys.executable, "-c", "raise SystemExit(7)"])
  with pytest.raises(WorkerError, match=r"process 1 of 2 .* ended with status 7"):
    next(Workers(functools.partial(numbers, every=bytes(size)), 2))
  monkeypatch.setattr(workers, "_PROGRAM", ["/nowhere"])
  with pytest.raises(WorkerError, match=r"cannot be started: .*nowhere.*config\.data\.workers"):
    next(Workers(sleeping, 2))


def test_signals_are_left_to_the_parent():
  """Workers ignore signals from their start; the parent still receives them."""
  before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
  with contextlib.closing(Workers(functools.partial(numbers, every=2), 2)) as made:
    made._start()
    for when in ("at the start", "later"):
      for pid in pids(made):
        os.kill(pid, signal.SIGINT)
        os.kill(pid, signal.SIGTERM)
      first = next(made)
      assert list(itertools.islice(made, 20)) == list(range(first + 1, first + 21)), when
  assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before


def test_workers_end_with_a_parent_that_is_killed():
  """Busy workers end too, although they do not notice that nobody takes their items."""
  program = """
    import time
    from tests.data.test_workers import Workers, sleeping
    made = Workers(sleeping, 2)
    print(next(made), next(made), flush=True)
    time.sleep(1000)
  """
  command = [sys.executable, "-c", textwrap.dedent(program)]
  with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as parent:
    started = [int(number) for number in parent.stdout.readline().split()]
    assert len(started) == 2
    parent.kill()
    deadline = time.monotonic() + 10
    while any(map(alive, started)):
      assert time.monotonic() < deadline
      time.sleep(0.01)
    assert parent.stdout.read() == b""
