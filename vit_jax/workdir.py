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


LONGEST_PATH = 3700  # bytes; Linux takes 4,095, and checkpoints have longer paths below this one
# Orbax searches below the path with the last three as wildcards, and so saves what it cannot read;
# tensorstore takes the first for a slash.
REFUSED = "\\*?["


def check(workdir: pathlib.Path):
  """Makes sure that checkpoints can be saved below this path, whatever is there already.

  Raises:
    ConfigError: its name forbids it.
  """
  path = workdir.absolute()
  found = [character for character in REFUSED if character in str(path)]
  if found:
    raise ConfigError(
      f"--workdir={workdir}: the path {path} holds {' and '.join(found)}, with which checkpoints "
      "cannot be saved; choose another --workdir."
    )
  try:
    size = len(str(path).encode())
  except UnicodeEncodeError as error:
    raise ConfigError(
      f"--workdir={workdir}: the path {path} is not UTF-8, and checkpoints cannot be saved there; "
      "choose another --workdir."
    ) from error
  if size > LONGEST_PATH:
    raise ConfigError(
      f"--workdir: a path of {size} bytes is too long for checkpoints below it; choose one of at "
      f"most {LONGEST_PATH}."
    )


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
  write_whole(workdir / CONFIG, json.dumps(to_dict(config), indent=2) + "\n")


def write_whole(path: pathlib.Path, text: str):
  """Writes a file that is never there in part: what was there stays until all is written."""
  temporary = path.with_name(f"{path.name}.tmp")
  temporary.write_text(text, encoding="utf-8")
  temporary.replace(path)


def set_aside(path: pathlib.Path, target: pathlib.Path) -> pathlib.Path:
  """Renames what is damaged to `target`, or to TARGET-again where that is taken; returns which."""
  while os.path.lexists(target):
    target = target.with_name(f"{target.name}-again")
  return path.rename(target)
