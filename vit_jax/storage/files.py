"""All functions that write the files of a run: folders, whole files, growing files, moves, locks.

Another kind of storage would be a second implementation of these functions. For now every path is
on this machine: `config.reading.expanded` refuses URLs. Two libraries write files themselves:
JAX's profiler, and orbax for checkpoints, whose manifest and final name are written here.
"""

import contextlib
import csv
import errno
import fcntl
import io
import os
import pathlib
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO

from vit_jax.config import ConfigError

Path = str | pathlib.Path


def make_folder(path: Path):
  """Makes a folder and its parents, if they do not exist.

  Raises:
    OSError: the folder cannot be made, or a file is in its place.
  """
  pathlib.Path(path).mkdir(parents=True, exist_ok=True)


def _replace(partial: str, path: Path):
  os.replace(partial, path)


@contextlib.contextmanager
def whole(path: Path, publish: Callable[[str, Path], None] = _replace) -> Iterator[str]:
  """A temporary path to write a file to; the file is renamed to `path` when it is safe on disk.

  After an error, or if nothing was written, `path` stays as it was: missing, or the old file.

  Args:
    path: the file.
    publish: gives the file at its first argument the name of its second one.

  Raises:
    OSError: the file cannot be written; the error names `path`. If the code inside cannot read
      another file, the error names that file.
  """
  partial = f"{path}.{secrets.token_hex(8)}.partial"
  try:
    yield partial
    with contextlib.suppress(FileNotFoundError):  # Another process wrote `path` and cleaned up.
      with open(partial, "rb") as stream:
        os.fsync(stream.fileno())
      publish(partial, path)
  except OSError as error:
    if error.filename in (None, partial):
      error.filename = str(path)
      del error.filename2  # of a rename; None would be shown as a name
    raise
  finally:
    pathlib.Path(partial).unlink(missing_ok=True)


def write_whole(path: Path, fill: Callable[[str], None]):
  """Lets `fill` write a file, as `whole`."""
  with whole(path) as partial:
    fill(partial)


def create(path: Path, text: str) -> bool:
  """Writes a file of UTF-8, unless there is one; of several processes, only one writes it.

  Returns:
    Whether this process wrote it; otherwise read what the other one wrote, and compare.

  Raises:
    OSError: it cannot be written.
  """
  try:
    with whole(path, _link) as partial:
      pathlib.Path(partial).write_text(text, encoding="utf-8")
  except FileExistsError:
    return False
  return True


def _link(partial: str, path: Path):
  """Gives a file a second name, unless it is taken."""
  try:
    os.link(partial, path)
  except OSError as error:
    if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
      raise
    with open(path, "xb") as copy:  # a storage without links; a reader may find a part of it
      copy.write(pathlib.Path(partial).read_bytes())


def write_bytes(path: Path, data: bytes):
  """Writes a file, as `whole`."""
  with whole(path) as partial, open(partial, "wb") as file:
    file.write(data)


def write_text(path: Path, text: str):
  """Writes a file of UTF-8, as `whole`."""
  write_bytes(path, text.encode())


def write_csv(path: Path, rows: Iterable[Iterable]):
  """Writes rows as CSV; quotes cells that need it, and escapes bytes that are not text."""
  with (
    whole(path) as partial,
    open(partial, "w", newline="", encoding="utf-8", errors="backslashreplace") as file,
  ):
    for row in rows:
      file.write(csv_line(row))


def csv_line(row: Iterable) -> str:
  r"""A row of CSV, ending with "\n".

  Python quotes only the line breaks that are in `lineterminator`. A reader takes "\r" for the end
  of a row too, so a cell with "\r" needs quotes.
  """
  line = io.StringIO(newline="")
  csv.writer(line, lineterminator="\r\n").writerow(row)
  return line.getvalue().removesuffix("\r\n") + "\n"


def as_written(text: str) -> str:
  """A text as `write_csv` writes it: bytes of a file's name that are not text become escapes."""
  return text.encode(errors="backslashreplace").decode()


def log(path: Path) -> BinaryIO:
  """Opens a file for what a process prints; it grows, and no line of it is changed.

  Raises:
    OSError: it cannot be written.
  """
  return open(path, "ab", buffering=0)


class Appender:
  """A file that grows by whole pieces."""

  def __init__(self, path: pathlib.Path):
    """Opens the file, or creates it."""
    self._path = path
    self._file = path.open("ab", buffering=0)

  def add(self, piece: bytes):
    """Writes a piece, or nothing at all.

    Raises:
      OSError: the file cannot be written, or is no longer at its path.
    """
    self._check_place()
    end = os.fstat(self._file.fileno()).st_size
    try:
      done = 0
      while done < len(piece):
        done += self._file.write(piece[done:])
    except OSError:
      self._file.truncate(end)
      raise

  def _check_place(self):
    # An open file survives its removal: a run whose folder was removed would lose what it writes.
    if not os.path.samestat(os.fstat(self._file.fileno()), os.stat(self._path)):
      raise FileNotFoundError(f"{self._path} was replaced by another file")

  def flush(self):
    """Returns once the file is on the disk.

    Raises:
      OSError: it cannot be written to disk; a full shared file system may report it only now.
    """
    os.fsync(self._file.fileno())

  def close(self):
    """Closes the file; ignores errors, so that they do not hide an earlier one."""
    with contextlib.suppress(OSError):
      self._file.close()


def write_numbered(parent: pathlib.Path, fill: Callable[[pathlib.Path], None]) -> pathlib.Path:
  """Lets `fill` fill a folder, which becomes PARENT/NUMBER, the next number; returns that path.

  Several processes may do this at once, and readers see each folder whole.

  Raises:
    OSError: it cannot be written; nothing is left of it.
  """
  partial = parent / f"{secrets.token_hex(8)}.partial"
  make_folder(partial)
  try:
    fill(partial)
    number = max(numbers_in(parent), default=0) + 1
    while not _claimed(partial, parent / str(number)):
      number += 1
  finally:
    remove(partial)
  return parent / str(number)


def _claimed(folder: pathlib.Path, name: pathlib.Path) -> bool:
  """Renames a folder that is not empty, unless another one has the name."""
  try:
    os.rename(folder, name)
  except OSError as error:
    if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
      return False
    raise
  return True


def numbers_in(folder: pathlib.Path) -> list[int]:
  """The names in a folder that are numbers, ascending; "007" or other scripts' digits are not."""
  names = [child.name for child in folder.iterdir()] if folder.is_dir() else []
  return sorted(int(name) for name in names if re.fullmatch("0|[1-9][0-9]*", name))


def rename(path: Path, target: Path):
  """Renames a file or folder, atomically."""
  os.rename(path, target)


def set_aside(path: pathlib.Path, target: pathlib.Path) -> pathlib.Path:
  """Renames a damaged file to `target`, or to TARGET-again if that exists; returns the new path."""
  while os.path.lexists(target):
    target = target.with_name(f"{target.name}-again")
  rename(path, target)
  return target


def remove(path: pathlib.Path):
  """Removes a file, or a folder as far as possible; a missing path is no error."""
  if path.is_dir():
    shutil.rmtree(path, ignore_errors=True)
  else:
    path.unlink(missing_ok=True)


def remove_empty(folder: pathlib.Path):
  """Removes a folder, unless something is in it."""
  with contextlib.suppress(OSError):
    folder.rmdir()


@contextlib.contextmanager
def locked(path: pathlib.Path, *, alone: bool) -> Iterator[os.stat_result]:
  """Creates a file and locks it; the system frees the lock however the process ends.

  Yields what `os.stat` says of the file: it tells later whether the file was replaced.

  Args:
    path: the file.
    alone: whether to lock it; otherwise it is only opened, to check that it can be written.

  Raises:
    BlockingIOError: another process holds it.
    OSError: the file cannot be written.
  """
  while True:
    # Non-blocking, because opening a pipe at this path would wait for a reader.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK, 0o666)
    with os.fdopen(descriptor, "w"):
      if alone:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
      if is_at(os.fstat(descriptor), path):  # else whoever held it has removed it meanwhile
        yield os.fstat(descriptor)
        return


def is_at(known: os.stat_result, path: Path) -> bool:
  """Whether the file at a path is still the one that `os.stat` told of.

  Raises:
    OSError: it cannot be known, for another reason than that there is none.
  """
  try:
    return os.path.samestat(known, os.stat(path))
  except FileNotFoundError:
    return False


@contextlib.contextmanager
def one_writer(path: Path) -> Iterator[None]:
  """Holds the lock PATH.lock, which is removed at the end: for what consists of several writes.

  Raises:
    ConfigError: another process holds it.
    OSError: it cannot be made.
  """
  lock = pathlib.Path(f"{path}.lock")
  with contextlib.ExitStack() as held:
    try:
      held.enter_context(locked(lock, alone=True))
    except BlockingIOError as error:
      raise ConfigError(
        f"{path} is being written by another command; wait for its end, or give another name."
      ) from error
    held.callback(remove, lock)  # while it is held
    yield
