"""The folder of a run: creates it, locks it against a second run, and writes config.json."""

import contextlib
import errno
import json
import os
import pathlib

from vit_jax.config import Config, ConfigError, RunError, StorageError, to_dict
from vit_jax.storage import files

LOCK = "lock"
CONFIG = "config.json"
CHECKPOINTS = "checkpoints"
MANIFEST = "manifest.json"  # of a checkpoint: the sum of every other file of it
EVALUATION = "evaluation.json"  # figures of the last --mode=evaluate
DETAILS = "evaluation"  # DETAILS/NUMBER/SET/: tables and pictures of each evaluation
PARAMETERS = "parameters.txt"  # lists how each parameter is split over devices
METRICS = "metrics.jsonl"
STARTS = "starts.jsonl"
IMAGES = "training_images"  # folder of some images, kept at the first start
PICTURES = "pictures"


class WriteError(StorageError):
  """The folder of the run cannot be written to; the message says why."""


def check_links(workdir: pathlib.Path):
  """Checks that nothing in the folder, which may come from a stranger, is a link out of it.

  What such a link leads to would be shown in a report, or written to. The folder itself may be a
  link, and so may all in `CHECKPOINTS`, which may be too large for the disk.

  Raises:
    ConfigError: names the link.
  """
  root = pathlib.Path(os.path.realpath(workdir))
  for folder, folders, names in os.walk(workdir):  # which does not follow links
    if folder == str(workdir):
      folders[:] = set(folders) - {CHECKPOINTS}
    for path in (os.path.join(folder, name) for name in (*folders, *names)):
      if os.path.islink(path) and not pathlib.Path(os.path.realpath(path)).is_relative_to(root):
        raise ConfigError(
          f"{path} is a link out of the workdir {workdir}, and may lead to anything; replace it by "
          "what it leads to, or remove it."
        )


class LostError(RunError):
  """The run does not have its folder to itself any more, and must not write there."""


_held: dict[pathlib.Path, os.stat_result] = {}  # by workdir: the lock that this process holds


@contextlib.contextmanager
def locked(workdir: pathlib.Path, *, first: bool):
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
      lock = held.enter_context(files.locked(workdir / LOCK, alone=first))
      _check_writable(workdir / CHECKPOINTS)
    except BlockingIOError as error:
      raise ConfigError(
        f"--workdir={workdir} is in use by another run; wait for it to end, stop "
        "it, or choose another --workdir."
      ) from error
    except OSError as error:
      raise ConfigError(
        f"--workdir={workdir} cannot be written to: {error.strerror} ({error.filename})."
      ) from error
    if first:
      _held[workdir.absolute()] = lock
      held.callback(_held.pop, workdir.absolute())
    yield


def _check_writable(folder: pathlib.Path):
  """Finds out before the first step what would otherwise fail at the first save."""
  if folder.is_dir() and not os.access(folder, os.W_OK | os.X_OK):
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))


def check_held(workdir: pathlib.Path):
  """Checks that the lock is where this process put it, if it did: call it before the run writes.

  Raises:
    LostError: it was removed or replaced; the folder itself is there.
  """
  lock = _held.get(workdir.absolute())
  with contextlib.suppress(OSError):  # what cannot be read may come back
    if lock and workdir.is_dir() and not files.is_at(lock, workdir / LOCK):
      raise LostError(
        f"{workdir / LOCK} was removed or replaced while this run held it, or the folder was moved "
        f"away; another run may be writing to {workdir}, so this one ends here and writes nothing "
        "more. If you moved the folder, remove what a save under way has left at its old place "
        "before you bring it back. Otherwise make sure that no other run uses it. Then start the "
        "same command again. Locks need no removing: each is free as soon as its run has ended."
      )


@contextlib.contextmanager
def writing(workdir: pathlib.Path):
  """Turns a file-system error inside into an error that names the folder.

  Raises:
    WriteError: the folder is gone, read-only or full.
  """
  try:
    yield
  except OSError as error:
    raise WriteError(
      f"The workdir {workdir} cannot be written to ({error}). Make room there, or bring it back; "
      "then start the same command again."
    ) from error


def details(folder: pathlib.Path) -> list[pathlib.Path]:
  """The folders of all evaluations of all sets, the newest evaluation first."""
  numbers = reversed(files.numbers_in(folder / DETAILS))
  return [path for n in numbers for path in sorted((folder / DETAILS / str(n)).glob("*/"))]


def write_config(workdir: pathlib.Path, config: Config):
  """Writes the whole resolved config to WORKDIR/config.json."""
  files.write_text(workdir / CONFIG, json.dumps(to_dict(config), indent=2) + "\n")
