"""The folder of a run: creates it, locks it against a second run, and writes config.json."""

import contextlib
import errno
import json
import secrets
from collections.abc import Callable

from vit_jax.process.errors import ConfigError, RunError, StorageError
from vit_jax.storage import files
from vit_jax.storage.base import CannotReadError, Lock, UnreachableError
from vit_jax.storage.paths import Path

LOCK = "lock"
CONFIG = "config.json"
CHECKPOINTS = "checkpoints"
MANIFEST = "manifest.json"  # of a checkpoint: the sum of every other file of it
EVALUATION = "evaluation.json"  # metrics of the last --mode=evaluate
DETAILS = "evaluation"  # DETAILS/NUMBER/SET/: tables and pictures of each evaluation
PARAMETERS = "parameters.txt"  # lists how each parameter is split over devices
METRICS = "metrics.jsonl"
STARTS = "starts.jsonl"
IMAGES = "training_images"  # folder of some images, kept at the first start
PICTURES = "pictures"


class WriteError(StorageError):
  """The folder of the run cannot be written to; the message says why."""


def check_links(workdir: Path):
  """Checks that nothing in the folder, which may come from a stranger, is a link out of it.

  What such a link leads to would be shown in a report, or written to. The folder itself may be a
  link, and so may all in `CHECKPOINTS`, which may be too large for the disk.

  Raises:
    ConfigError: names the link.
  """
  for link in files.links_out(workdir, skipped=CHECKPOINTS):
    raise ConfigError(
      f"{link} is a link out of the workdir {workdir}, and may lead to anything; replace it by "
      "what it leads to, or remove it."
    )


class LostError(RunError):
  """The run does not have its folder to itself any more, and must not write there."""


_held: dict[Path, Lock] = {}  # by workdir: the lock that this process holds


@contextlib.contextmanager
def locked(workdir: Path, *, first: bool):
  """Makes and locks the folder; the operating system frees the lock however the run ends.

  Args:
    workdir: the folder.
    first: whether this is the first process of the run; the others rely on its lock.

  Raises:
    ConfigError: the folder cannot be made or written to, or another run has locked it.
  """
  with contextlib.ExitStack() as held:
    try:
      files.make_folder(workdir)
      if first:
        _held[workdir.absolute()] = held.enter_context(files.locked(workdir / LOCK))
        held.callback(_held.pop, workdir.absolute())
      # Found out before the first step, not at the first save.
      for folder in (workdir, workdir / CHECKPOINTS):
        if files.is_folder(folder):
          files.check_writable(folder)
    except BlockingIOError as error:
      raise ConfigError(
        f"--workdir={workdir} is in use by another run; wait for it to end, stop "
        "it, or choose another --workdir."
      ) from error
    except UnreachableError:
      raise
    except OSError as error:
      raise ConfigError(
        f"--workdir={workdir} cannot be written to: {error.strerror} ({error.filename})."
      ) from error
    yield


def check_held(workdir: Path):
  """Checks that the lock is where this process put it, if it did: call it before the run writes.

  Raises:
    LostError: it was removed or replaced; the folder itself is there.
  """
  lock = _held.get(workdir.absolute())
  with contextlib.suppress(OSError):  # what cannot be read may come back
    if lock and files.is_folder(workdir) and not lock.held():
      raise LostError(
        f"{workdir / LOCK} was removed or replaced while this run held it, or the folder was moved "
        f"away; another run may be writing to {workdir}, so this one ends here and writes nothing "
        "more. If you moved the folder, remove what a save under way has left at its old place "
        "before you bring it back. Otherwise make sure that no other run uses it. Then start the "
        "same command again. Locks need no removing: each is free as soon as its run has ended."
      )


@contextlib.contextmanager
def writing(workdir: Path):
  """Turns a file-system error inside into an error that names the folder.

  Raises:
    WriteError: the folder is gone, read-only or full.
    CannotReadError: what had to be read first cannot be read now.
  """
  try:
    yield
  except CannotReadError:
    raise
  except OSError as error:
    raise WriteError(
      f"The workdir {workdir} cannot be written to ({error}). Make room there, or bring it back; "
      "then start the same command again."
    ) from error


def details(folder: Path) -> list[Path]:
  """The folders of all evaluations of all sets, the newest evaluation first."""
  numbers = reversed(files.numbers_in(folder / DETAILS))
  children = (path for n in numbers for path in files.matching(folder / DETAILS / str(n)))
  return [path for path in children if files.is_folder(path)]


def write_details(workdir: Path, fill: Callable[[Path], None]) -> Path:
  """Lets `fill` fill a folder, which becomes DETAILS/NUMBER, the next number; returns that path.

  Several processes may do this at once, and readers see each folder whole. After an error nothing
  is left of it.
  """
  parent = workdir / DETAILS
  partial = parent / f"{secrets.token_hex(8)}.partial"
  files.make_folder(partial)
  try:
    fill(partial)
    number = max(files.numbers_in(parent), default=0) + 1
    while not _claimed(partial, parent / str(number)):
      number += 1
  finally:
    files.remove(partial)
  return parent / str(number)


def _claimed(folder: Path, name: Path) -> bool:
  """Renames a folder that is not empty, unless another one has the name."""
  try:
    files.rename(folder, name)
  except OSError as error:
    if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
      return False
    raise
  return True


def write_config(workdir: Path, config: dict):
  """Writes the whole resolved config, as a dictionary, to WORKDIR/config.json."""
  files.write_text(workdir / CONFIG, json.dumps(config, indent=2) + "\n")
