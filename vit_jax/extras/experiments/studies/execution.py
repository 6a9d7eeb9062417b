"""Does the runs of a study on this machine, several at a time if asked to, and shows progress."""

import concurrent.futures
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from vit_jax import recipes
from vit_jax.config import RunError, Stopped
from vit_jax.extras.experiments.runs import Children, Run
from vit_jax.extras.experiments.studies.jobs import Cost, Job
from vit_jax.extras.experiments.studies.store import (
  RunStore,
  note_start,
  places,
  sum_of_newest,
  sum_of_weights,
)
from vit_jax.process import console
from vit_jax.process.progress import PERIOD, Line
from vit_jax.process.text import h_mm_ss, one_line
from vit_jax.storage import files, metrics_log, workdir
from vit_jax.storage.base import raised_as
from vit_jax.storage.files import read_bytes
from vit_jax.storage.paths import Path, path_of

POLL = 1.0  # seconds between two looks at a workdir that another command uses


class Progress:
  """Says how much is done, measured in FLOPs, and how long the rest will take at this speed."""

  def __init__(self, store: RunStore, some: list[Job], costs: Mapping[str, Cost], *, clock=None):
    """Starts the clock. Runs whose length is not known count as one step."""
    self._store = store
    self._jobs = some
    self._costs = costs
    self._clock: Callable[[], float] = clock or time.monotonic
    self._began = self._clock()
    self._before, _ = self._work()
    self._line = Line(sys.stderr)

  def _work(self):
    """(work done, all work), in exaFLOPs."""
    done = total = 0.0
    for job in self._jobs:
      cost = self._costs[repr(job)]
      work = cost.work(cost.steps or 1)
      total += work
      done += work * self._share(job, cost.steps or 1)
    return done, total

  def _share(self, job, steps):
    run = self._store.run(job)
    if run is None:
      return 0.0
    if self._store.done(job):
      return 1.0
    lines = metrics_log.read_lines(run.folder)
    if not lines:
      return 0.0
    return min(lines[-1]["step"] / steps, 1.0)

  def line(self, *, under_way: int, failed: int) -> str:
    """Such as "12 of 24 runs done, 1 under way, 51.2%, ETA 0:21:07"."""
    done = sum(self._store.done(job) is not None for job in self._jobs)
    work, total = self._work()
    words = [f"{done} of {len(self._jobs)} runs done"]
    if failed:
      words.append(f"{failed} failed")
    words.append(f"{under_way} under way")
    words.append(f"{work / total:.1%}" if total else "100%")
    spent = work - self._before
    if spent > 0:
      seconds = (total - work) / spent * (self._clock() - self._began)
      words.append(f"ETA {h_mm_ss(seconds)}")
    return ", ".join(words)

  def show(self, **counts: int):
    """Prints the line; on a terminal it replaces the previous one."""
    self._line.show(self.line(**counts))

  def say(self, line: str):
    """Prints a line that stays."""
    self._line.say(line)


def execute(store: RunStore, some: list[Job], *, jobs: int, progress: Progress) -> list[str]:
  """Does the jobs that are not done; a job that fails costs only those that need it.

  Args:
    store: knows which are done and what they chose.
    some: the jobs.
    jobs: most processes at a time.
    progress: says what happens.

  Returns:
    A sentence for each run that failed.

  Raises:
    RunError: the folder cannot be written to.
    Stopped: SIGTERM or SIGINT came; the runs under way got the signal too and have ended.
  """
  failed = {}
  under_way = {}
  with Children() as children, concurrent.futures.ThreadPoolExecutor(jobs) as pool:
    try:
      while not children.asked:
        busy = {run.folder for run in under_way.values()}
        for run in startable(store, some, busy | failed.keys())[: jobs - len(under_way)]:
          progress.say(f"Started: {run.name} ({run.folder.name})")
          read = sources(run)  # here, because recipes cannot be run in several threads
          under_way[pool.submit(call, run, children, read)] = run
        if not under_way:
          break
        progress.show(under_way=len(under_way), failed=len(failed))
        ended, _ = concurrent.futures.wait(
          under_way, timeout=PERIOD, return_when=concurrent.futures.FIRST_COMPLETED
        )
        for future in ended:
          run = under_way.pop(future)
          failure = future.result()
          if failure:
            failed[run.folder] = failure
          progress.say(failure or f"{end_of(run)}: {run.name} ({run.folder.name})")
    finally:
      stopping = children.asked
      children.asked = True  # if an error is on its way, no further process starts
    concurrent.futures.wait(under_way)
  if stopping:
    raise Stopped("The study was stopped by a signal; start the same command again to go on.")
  progress.show(under_way=0, failed=len(failed))
  return list(failed.values())


def end_of(run: Run) -> str:
  """How a run ended that did not fail; a signal may have stopped it."""
  return "Done" if run.result() else "Stopped"


def startable(store: RunStore, some: list[Job], left_out: set[Path]) -> list[Run]:
  """The runs that are not done and can start now, without those in the folders `left_out`."""
  runs = {}
  for job in some:
    missing = first_missing(store, job, start=False)
    run = missing and store.run(missing)
    if run and run.folder not in left_out:
      runs[run.folder] = run
  return list(runs.values())


def first_missing(store: RunStore, job: Job, *, start: bool) -> Job | None:
  """The job that must be done first for this one; None if this one is done.

  With `start`, another run starts from this one, so its last checkpoint must be there too.
  """
  finished = store.saved(job) if start else store.done(job) is not None
  if finished:
    return None
  before = job.before()
  missing = before and first_missing(store, before, start=True)
  return missing or job


def call(run: Run, children: Children, read: Sequence[str] = ()) -> str:
  """Does a run, and returns a sentence if it fails, else "".

  If another process is doing the run, such as one that outlived an earlier command, it waits for
  its end. `read` are its `sources`.

  Raises:
    RunError: the folder of the study cannot be written to, or as `note_start`.
  """
  if failure := still_trains(read):
    return failure
  log = run.folder.with_name(f"{run.folder.name}.log")
  again = run.result() is not None  # its checkpoint is gone
  waited = False
  while True:
    waited = wait_until_free(run.folder, children) or waited
    if children.asked or (waited and run.result() and not again):
      return ""
    with workdir.writing(run.folder.parent):
      files.make_folder(run.folder.parent)
      note_start(run)
      with files.log(log) as output:
        status = children.call([sys.executable, *run.arguments()], output)
    refused = status == console.WRONG_USAGE
    waited = refused and (in_use(run.folder) or bool(run.result() and not again))
    if not waited:  # else another process was first, and may have ended meanwhile
      return ending(run, status, log, stopped=children.asked)


def sources(run: Run) -> list[str]:
  """The places of the weights that a run reads, without that of the run before it."""
  config = recipes.resolve(run.recipe, run.overrides)
  return [place for place in places(config) if path_of(place) != run.before]


def still_trains(read: Sequence[str]) -> str:
  """A sentence if one of a run's `sources` still trains, or has trained meanwhile, else "".

  Runs that are compared would start from different weights.
  """
  for place in read:
    path = path_of(place)
    newest = sum_of_newest(path)
    if newest and (newest != sum_of_weights(place) or in_use(path)):
      return (
        f"{place} still trains, so runs would start from different weights. Wait for its end, or "
        f"name one of its checkpoints that stays (config.checkpoint.keep_every): "
        f"{place}/{workdir.CHECKPOINTS}/STEP."
      )
  return ""


def wait_until_free(folder: Path, children: Children) -> bool:
  """Waits while another process uses a workdir; returns whether one did."""
  waited = False
  while not children.asked and in_use(folder):
    waited = True
    time.sleep(POLL)
  return waited


def in_use(folder: Path) -> bool:
  """Whether a run holds the lock of a workdir."""
  try:
    return files.is_locked(folder / workdir.LOCK)
  except OSError:
    return False  # the run itself will say what is wrong


def ending(run: Run, status: int, log: Path, *, stopped: bool) -> str:
  """A sentence if a run that ended with `status` has failed, else ""."""
  if stopped or status == console.STOPPED:
    return ""
  if status == console.DONE and run.result():
    return ""
  if status < 0:  # what it printed last does not say why
    what = f"was killed by {signal.Signals(-status).name}; look whether memory ran out."
  elif status:
    what = f"failed with exit status {status}: {last_line(log)}"
  else:
    what = "ended without an evaluation."
  return f"{run.name[0].upper()}{run.name[1:]} {what} All that it printed is in {log}."


def last_line(log: Path) -> str:
  """The last line that a run printed."""
  with raised_as(RunError, lambda error: f"{log} cannot be read: {error.strerror}.", OSError):
    lines = read_bytes(log, most=2**26).decode(errors="replace").strip().splitlines()
  if not lines:
    return "it printed nothing."
  return one_line(lines[-1])
