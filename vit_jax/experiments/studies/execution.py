"""Starts the runs of a study on this machine, several at a time if asked to."""

import concurrent.futures
import pathlib
import signal
import sys
import time

from vit_jax.config import RunError, Stopped, command_line
from vit_jax.config.reading import read_bytes
from vit_jax.experiments.runs import Children, Run
from vit_jax.experiments.studies.jobs import Job
from vit_jax.experiments.studies.ledger import Ledger
from vit_jax.experiments.studies.progress import Progress
from vit_jax.process.text import one_line
from vit_jax.storage import files, workdir

PERIOD = 30.0  # seconds between two lines of progress
POLL = 1.0  # seconds between two looks at a workdir that another command uses


def execute(ledger: Ledger, some: list[Job], *, jobs: int, progress: Progress) -> list[str]:
  """Does the jobs that are not done; a job that fails costs only those that need it.

  Args:
    ledger: tells which are done and what they chose.
    some: the jobs.
    jobs: most processes at a time.
    progress: says what happens.

  Returns:
    A sentence for each run that failed.

  Raises:
    RunError: the folder cannot be written to.
    Stopped: SIGTERM or SIGINT came; the runs under way got the signal too and have ended.
  """
  failed, under_way = {}, {}
  with Children() as children, concurrent.futures.ThreadPoolExecutor(jobs) as pool:
    try:
      while not children.asked:
        busy = {run.folder for run in under_way.values()}
        for run in startable(ledger, some, busy | failed.keys())[: jobs - len(under_way)]:
          progress.say(f"Started: {run.name} ({run.folder.name})")
          under_way[pool.submit(call, run, children)] = run
        if not under_way:
          break
        progress.show(under_way=len(under_way), failed=len(failed))
        ended, _ = concurrent.futures.wait(
          under_way, timeout=PERIOD, return_when=concurrent.futures.FIRST_COMPLETED
        )
        for future in ended:
          run, said = under_way.pop(future), future.result()
          failed |= {run.folder: said} if said else {}
          progress.say(said or f"{end_of(run)}: {run.name} ({run.folder.name})")
    finally:
      stopping = children.asked
      children.asked = True  # if an error is on its way, no further process starts
    concurrent.futures.wait(under_way)
  if stopping:
    raise Stopped("The study was stopped by a signal; start the same command again to go on.")
  progress.show(under_way=0, failed=len(failed))
  return list(failed.values())


def end_of(run: Run) -> str:
  """How a run ended that did not fail; a signal may have come to it, or to all."""
  return "Done" if run.result() else "Stopped"


def startable(ledger: Ledger, some: list[Job], left_out: set[pathlib.Path]) -> list[Run]:
  """The runs that are not done and can start now, without those in the folders `left_out`."""
  found = {}
  for job in some:
    for one in first_missing(ledger, job, start=False):
      run = ledger.run(one)
      if run:
        found.setdefault(run.folder, run)
  return [run for folder, run in found.items() if folder not in left_out]


def first_missing(ledger: Ledger, job: Job, *, start: bool) -> list[Job]:
  """The job that must be done first for this one; [] if this one is done.

  With `start`, another run starts from this one, so its last checkpoint must be there too.
  """
  if ledger.saved(job) if start else ledger.done(job) is not None:
    return []
  before = job.before()
  return (first_missing(ledger, before, start=True) if before else []) or [job]


def call(run: Run, children: Children) -> str:
  """Does a run, and returns a sentence if it fails, else "".

  If another process is doing the run, such as one that outlived an earlier command, it waits for
  its end.

  Raises:
    RunError: the folder of the study cannot be written to.
  """
  log, waited = run.folder.with_name(f"{run.folder.name}.log"), False
  while True:
    waited = wait_until_free(run.folder, children) or waited
    if children.asked or (waited and run.result()):
      return ""
    with workdir.writing(run.folder.parent):
      files.make_folder(run.folder.parent)
      output = files.log(log)
    with output:
      status = children.call([sys.executable, *run.arguments()], output)
    waited = status == command_line.WRONG_USAGE and (in_use(run.folder) or bool(run.result()))
    if not waited:  # else another process was first, and may have ended meanwhile
      return ending(run, status, log, stopped=children.asked)


def wait_until_free(folder: pathlib.Path, children: Children) -> bool:
  """Waits while another process uses a workdir; returns whether one did."""
  waited = False
  while not children.asked and in_use(folder):
    waited = True
    time.sleep(POLL)
  return waited


def in_use(folder: pathlib.Path) -> bool:
  """Whether a run holds the lock of a workdir."""
  if not (folder / workdir.LOCK).exists():
    return False
  try:
    with files.locked(folder / workdir.LOCK, alone=True):
      return False
  except BlockingIOError:
    return True
  except OSError:
    return False  # the run itself will say what is wrong


def ending(run: Run, status: int, log: pathlib.Path, *, stopped: bool) -> str:
  """A sentence if a run that ended with `status` has failed, else ""."""
  if stopped or status == command_line.STOPPED:
    return ""
  if status == command_line.DONE and run.result():
    return ""
  if status < 0:  # what it printed last does not say why
    what = f"was killed by {signal.Signals(-status).name}; look whether memory ran out."
  elif status:
    what = f"failed with exit status {status}: {last_line(log)}"
  else:
    what = "ended without an evaluation."
  return f"{run.name[0].upper()}{run.name[1:]} {what} All that it printed is in {log}."


def last_line(log: pathlib.Path) -> str:
  """The last line that a run printed."""
  try:
    lines = read_bytes(log, most=2**26).decode(errors="replace").strip().splitlines()
  except OSError as error:
    raise RunError(f"{log} cannot be read: {error.strerror}.") from error
  return one_line(lines[-1]) if lines else "it printed nothing."
