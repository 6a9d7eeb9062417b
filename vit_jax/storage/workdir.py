"""The folder of a run: made, locked against a second run, and described by config.json."""

import contextlib
import fcntl
import json
import os
import pathlib

from vit_jax.config import Config, ConfigError, StorageError, to_dict

LOCK = "lock"
CONFIG = "config.json"
PARAMETERS = "parameters.txt"  # how each is split over devices


class WriteError(StorageError):
  """The folder of the run cannot be written to; the message says why."""


@contextlib.contextmanager
def locked(workdir: pathlib.Path, *, first: bool):
  """Makes the folder and holds its lock; the operating system frees it however the run ends.

  Args:
    workdir: the folder.
    first: whether this is the first process of the run; the others rely on its lock.

  Raises:
    ConfigError: the folder cannot be made or written to, or another run holds it.
  """
  try:
    workdir.mkdir(parents=True, exist_ok=True)
    # Without waiting: a pipe in its place would wait for a reader.
    file = os.fdopen(os.open(workdir / LOCK, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK, 0o666), "w")
  except OSError as error:
    raise ConfigError(f"--workdir={workdir} cannot be written to: {error.strerror}.") from error
  with file:
    try:
      if first:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
      raise ConfigError(
        f"--workdir={workdir} is in use by another run; wait for it to end, stop "
        "it, or choose another --workdir."
      ) from error
    yield


@contextlib.contextmanager
def writing(workdir: pathlib.Path):
  """Turns an error of the file system inside into one that names the folder.

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


def write_config(workdir: pathlib.Path, config: Config):
  """Writes the whole resolved config to WORKDIR/config.json."""
  temporary = workdir / (CONFIG + ".tmp")
  temporary.write_text(json.dumps(to_dict(config), indent=2) + "\n", encoding="utf-8")
  temporary.replace(workdir / CONFIG)


def set_aside(path: pathlib.Path, target: pathlib.Path) -> pathlib.Path:
  """Renames what is damaged to `target`, or to TARGET-again where that is taken; returns which."""
  while os.path.lexists(target):
    target = target.with_name(f"{target.name}-again")
  return path.rename(target)
