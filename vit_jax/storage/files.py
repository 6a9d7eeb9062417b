"""All writing of a run goes through here: folders, whole files, files that grow, moves, the lock.

Another kind of storage is a second implementation of these functions. For now every path is one
of this machine: `config.reading.expanded` refuses URLs. Two libraries write files by themselves:
orbax those of a checkpoint, which gets its manifest and its name here, and JAX's profiler.
"""

import contextlib
import csv
import fcntl
import os
import pathlib
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator

Path = str | pathlib.Path


def make_folder(path: Path):
  """Makes a folder and those that it lies in, where they are not there.

  Raises:
    OSError: it cannot be made, or a file is in its place.
  """
  pathlib.Path(path).mkdir(parents=True, exist_ok=True)


@contextlib.contextmanager
def whole(path: Path) -> Iterator[str]:
  """The path of a file to be written inside, which gets its name when it is complete and on disk.

  After an error, or if nothing was written, there is no file, or the one from before.

  Raises:
    OSError: it cannot be written; names `path`. Or something cannot be read inside: names that.
  """
  partial = f"{path}.{secrets.token_hex(8)}.partial"
  try:
    yield partial
    with contextlib.suppress(FileNotFoundError):  # Another process made it all, and tidied up.
      with open(partial, "rb") as stream:
        os.fsync(stream.fileno())
      os.replace(partial, path)
  except OSError as error:
    if error.filename in (None, partial):
      error.filename, error.filename2 = str(path), None
    raise
  finally:
    pathlib.Path(partial).unlink(missing_ok=True)


def write_whole(path: Path, fill: Callable[[str], None]):
  """Lets `fill` write a file, as `whole`."""
  with whole(path) as partial:
    fill(partial)


def write_bytes(path: Path, data: bytes):
  """Writes a file, as `whole`."""
  with whole(path) as partial, open(partial, "wb") as file:
    file.write(data)


def write_text(path: Path, text: str):
  """Writes a file of UTF-8, as `whole`."""
  write_bytes(path, text.encode())


def write_csv(path: Path, rows: Iterable[Iterable]):
  """Writes rows as CSV, quoted where a cell needs it; bytes that are no text are escaped."""
  with (
    whole(path) as partial,
    open(partial, "w", newline="", encoding="utf-8", errors="backslashreplace") as file,
  ):
    csv.writer(file, lineterminator="\n").writerows(rows)


class Appender:
  """A file that grows by whole pieces only; a piece that cannot be written waits for the next."""

  def __init__(self, path: pathlib.Path):
    """Opens the file, or makes it."""
    self._path = path
    self._file = path.open("ab", buffering=0)
    self._waiting = b""

  def add(self, piece: bytes):
    """Writes what waits and then the piece, or nothing.

    Raises:
      OSError: it cannot be written, or the file is no longer where it was.
    """
    self._waiting += piece
    self._check_place()
    end = os.fstat(self._file.fileno()).st_size
    try:
      done = 0
      while done < len(self._waiting):
        done += self._file.write(self._waiting[done:])
    except OSError:
      self._file.truncate(end)
      raise
    self._waiting = b""

  def _check_place(self):
    # An open file outlives its name: a run whose folder was removed would write to nowhere.
    if not os.path.samestat(os.fstat(self._file.fileno()), os.stat(self._path)):
      raise FileNotFoundError(f"{self._path} was replaced by another file")

  def flush(self):
    """Returns once the file is on the disk.

    Raises:
      OSError: it cannot be brought there; shared file systems may say only now that they are full.
    """
    os.fsync(self._file.fileno())

  def close(self):
    """Closes the file; what goes wrong then hides no error that may be under way."""
    with contextlib.suppress(OSError):
      self._file.close()


def rename(path: Path, target: Path):
  """Gives a file or folder another name, at once."""
  os.rename(path, target)


def set_aside(path: pathlib.Path, target: pathlib.Path) -> pathlib.Path:
  """Renames what is damaged to `target`, or to TARGET-again where that is taken; returns which."""
  while os.path.lexists(target):
    target = target.with_name(f"{target.name}-again")
  rename(path, target)
  return target


def remove(path: pathlib.Path):
  """Removes a file, or a folder as far as possible; what is not there is no error."""
  if path.is_dir():
    shutil.rmtree(path, ignore_errors=True)
  else:
    path.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(path: pathlib.Path, *, alone: bool):
  """Holds the lock of a file, which is made; the system frees it however the process ends.

  Args:
    path: the file.
    alone: whether to hold it; otherwise the file is only opened, to see that it can be written.

  Raises:
    BlockingIOError: another process holds it.
    OSError: the file cannot be written.
  """
  # Without waiting: a pipe in its place would wait for a reader.
  descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK, 0o666)
  with os.fdopen(descriptor, "w"):
    if alone:
      fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    yield
