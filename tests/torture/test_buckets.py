"""Runs in a bucket that end at any request, while others fail: nothing that was saved is lost."""

import contextlib
import random
import signal
import time

import jax
import obstore
import pytest

from tests import buckets, programs
from tests.ends import assert_equal_ends
from tests.faults import faulty
from tests.storage import states
from vit_jax.extras.buckets import client, lease
from vit_jax.process.errors import RunError
from vit_jax.storage import checkpoint, files, metrics_log, workdir
from vit_jax.storage.paths import path_of

CASES = (0, 20)  # extras/buckets/test_buckets.py has single faults in every test run
LIVES = 10  # of one run, each ended at some request
LAST, EVERY = 12, 3  # steps, and steps between two saves
REQUESTS = 160  # of the longest of these lives; a whole run has about 600
RATE = 0.05  # of requests that get a fault


def cases(count: int):
  """Seeds of the moments, in turn for both services."""
  return [(f"{('gs', 's3')[i % 2]}-{i}", (("gs", "s3")[i % 2], i)) for i in range(count)]


class DeadError(Exception):
  """The process is gone: none of its requests reaches the bucket."""


class Mortal:
  """A process that dies after a number of requests by obstore, before or after the last one."""

  def __init__(self, monkeypatch):
    self.left, self.afterwards = 10**9, False
    for name in ("get", "head", "put", "list", "list_with_delimiter", "copy", "delete"):
      monkeypatch.setattr(obstore, name, self._counted(getattr(obstore, name)))

  def _counted(self, member):
    def ask(*args, **options):
      self.left -= 1
      if self.left < 0:
        if self.left == -1 and self.afterwards:
          member(*args, **options)
        raise DeadError
      return member(*args, **options)

    return ask


@pytest.fixture
def service(case, monkeypatch):
  """The process of a case, the proxy of its server, and the scheme."""
  scheme, _ = case
  with buckets.served(scheme) as proxy:
    monkeypatch.setattr(client, "PAUSES", (0.01, 0.02, 0.05, 0.1, 0.1, 0.1))
    yield Mortal(monkeypatch), proxy, scheme


def test_a_run_that_dies_at_any_request_goes_on(case, service, monkeypatch):
  mortal, proxy, scheme = service
  rng, folder = random.Random(case[1]), path_of(f"{scheme}://{buckets.BUCKET}/run")
  number, reached = iter(range(10**9, 2 * 10**9)), [0]
  said = lambda: {"machine": lease._machine(), "process": dying, "started": "1"}
  monkeypatch.setattr(lease, "_this_process", said)  # of a process that is never there
  with proxy.faulty(RATE, seed=case[1]):
    for life in range(LIVES + 1):
      dying = next(number)
      mortal.left = rng.randrange(REQUESTS) if life < LIVES else 10**9
      mortal.afterwards = rng.random() < 0.5
      with (
        contextlib.suppress(OSError, RunError, ValueError)
        if life < LIVES
        else contextlib.nullcontext()
      ):
        live(folder)
      mortal.left = 10**9
      reached.append(max(checkpoint.available(folder), default=0))
      assert not checkpoint.available(folder) or intact(folder)
  assert reached == sorted(reached)
  assert reached[-1] == LAST
  lines = [(line["step"], line["loss"]) for line in metrics_log.read_lines(folder)]
  assert lines == [(step, step / 7) for step in range(1, LAST + 1)]
  expected, found = states.at_step(LAST), states.restore(folder)
  pairs = zip(jax.tree.leaves(expected), jax.tree.leaves(found), strict=True)
  assert all(bool((a == b).all()) for a, b in pairs)
  assert {path.split("/")[1] for path in files.files_below(folder) if "/" in path} == {
    str(step) for step in (LAST, LAST - EVERY, LAST - 2 * EVERY)
  }


def intact(folder):
  """Whether no checkpoint that is listed is damaged."""
  return not any(
    checkpoint.damage_of(folder / "checkpoints" / str(step))
    for step in checkpoint.available(folder)
  )


def live(folder):
  """One process of a run, from its last checkpoint on."""
  with workdir.locked(folder, first=True), contextlib.closing(states.opened(folder)) as saving:
    done = saving.last_step() or 0
    with contextlib.closing(metrics_log.Writer(folder, start_step=done)) as writer:
      for step in range(done + 1, LAST + 1):
        writer.write(step, {"loss": step / 7})
        if step % EVERY == 0:
          states.until_it_is_saved(saving, step)


def test_kill_9_leaves_no_trace(case, service, tmp_path, request):
  if not request.config.getoption("--torture"):
    pytest.skip("hundreds of processes: make torture")
  _, proxy, scheme = service
  rng, alone, there = random.Random(case[1]), tmp_path / "alone", f"{scheme}://{buckets.BUCKET}/run"
  assert programs.run(command(alone)).returncode == 0
  with proxy.faulty(RATE, seed=case[1]):
    for _ in range(LIVES):
      with programs.start(command(there)) as process:
        before, most = proxy.count, rng.randrange(500)
        while process.poll() is None and proxy.count - before < most:
          time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        output = process.finish(300)
      assert "Traceback" not in output, output
    assert programs.run(command(there)).returncode == 0
    assert_equal_ends(path_of(there), alone, step=40)


def command(workdir):
  return programs.digits(workdir, *faulty.COMMON)
