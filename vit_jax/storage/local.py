"""The storage of this machine, or of whatever is mounted as a folder: `base.Storage` for its paths.

Only regular files are opened, so that no read blocks for ever: opening a FIFO for reading blocks
until a process writes to it, and reading a device may never end.
"""

import contextlib
import errno
import fcntl
import os
import pathlib
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO

from vit_jax.storage.base import FILE, FOLDER, NOTHING, OTHER, ChangedError, Entry, FileVersion

_KINDS = (
  (stat.S_ISDIR, "a folder"),
  (stat.S_ISFIFO, "a FIFO"),
  (stat.S_ISSOCK, "a socket"),
  (stat.S_ISCHR, "a device"),
  (stat.S_ISBLK, "a device"),
)
# Errors of a folder that its file system cannot sync, or that may be written to but not listed.
_NO_SYNC = (errno.EINVAL, errno.EBADF, errno.ENOTSUP, errno.ENOSYS, errno.EACCES)


class _Local:
  """Files and folders of this machine."""

  direct = True

  def open(self, path) -> BinaryIO:
    return open(path, "rb", buffering=0, opener=regular)

  def kind(self, path) -> str:
    try:
      mode = os.stat(path).st_mode
    except OSError as error:
      if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG):
        raise
      return OTHER if os.path.islink(path) else NOTHING
    if stat.S_ISREG(mode):
      return FILE
    if stat.S_ISDIR(mode):
      return FOLDER
    return OTHER

  def stamp(self, path) -> FileVersion:
    return _stamp(os.stat(path))

  def part(self, path, stamp, start, stop) -> bytes:
    try:
      with self.open(path) as stream:
        if _stamp(os.fstat(stream.fileno())) != stamp:
          raise ChangedError(path)
        stream.seek(start)
        return stream.read(stop - start)
    except FileNotFoundError as error:
      raise ChangedError(path) from error

  def scan(self, folder) -> Iterator[Entry]:
    with os.scandir(folder) as entries:
      yield from entries

  def at_once(self, ask: Callable, items: Iterable) -> list:
    return list(map(ask, items))

  def names(self, folder) -> list[str]:
    return os.listdir(folder)

  def sizes_below(self, folder) -> Iterator[tuple[str, int]]:
    for parent, _, names in os.walk(folder, onerror=_unless_gone):  # follows no links
      for path in (pathlib.Path(parent, name) for name in names):
        with contextlib.suppress(FileNotFoundError):  # removed meanwhile
          if self.kind(path) == FILE:
            yield path.relative_to(folder).as_posix(), os.stat(path).st_size

  def kvstore(self, folder) -> dict:
    return {"driver": "file", "path": f"{pathlib.Path(folder).absolute()}/"}

  def make_folder(self, path):
    pathlib.Path(path).mkdir(parents=True, exist_ok=True)

  def partial(self, path) -> str:
    return f"{path}.{secrets.token_hex(8)}.partial"  # beside it, to be renamed

  def put(self, partial: str, path, *, new: bool):
    self.sync(partial)
    if new:
      _link(partial, path)
    else:
      os.replace(partial, path)

  def sync(self, path):
    try:
      descriptor = os.open(path, os.O_RDONLY)
      try:
        os.fsync(descriptor)
      finally:
        os.close(descriptor)
    except OSError as error:
      if error.errno not in _NO_SYNC or not os.path.isdir(path):
        raise

  def append(self, path) -> "Appender":
    return Appender(path)

  def rename(self, path, target):
    os.rename(path, target)

  def remove(self, path):
    if os.path.isdir(path):
      shutil.rmtree(path, ignore_errors=True)
    else:
      pathlib.Path(path).unlink(missing_ok=True)

  @contextlib.contextmanager
  def lock(self, path) -> Iterator["Flock"]:
    while True:
      # Non-blocking, because opening a pipe at this path would wait for a reader.
      descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK, 0o666)
      with os.fdopen(descriptor, "w"):
        _flock(descriptor, path)
        lock = Flock(path, os.fstat(descriptor))
        if lock.held():  # otherwise its last holder has removed it meanwhile
          yield lock
          return

  def is_locked(self, path):
    try:
      descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
      return False
    with os.fdopen(descriptor):
      try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # which others may do at once
      except BlockingIOError:
        return True
    return False


LOCAL = _Local()


def _unless_gone(error: OSError):
  """Raises an error that would hide files of a folder, unless the folder itself was removed."""
  if not isinstance(error, FileNotFoundError):
    raise error


def _flock(descriptor: int, path):
  try:
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except OSError as error:
    if error.errno in (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP):
      why = "its file system gives no locks: mount it with locks, or take another one"
      raise OSError(error.errno, why, str(path)) from error
    error.filename = str(path)
    raise


def _stamp(stat: os.stat_result) -> FileVersion:
  return FileVersion(stat.st_size, str(stat.st_mtime_ns))


def regular(path: str, flags: int) -> int:
  """An opener that never waits: `open(path, opener=regular)`.

  Raises:
    OSError: as `os.open`, or the path does not lead to a regular file.
  """
  try:
    descriptor = os.open(path, flags | os.O_NONBLOCK, 0o666)
  except OSError as error:
    if error.errno == errno.ENXIO:  # a socket, or a FIFO opened for writing
      raise _irregular(os.stat(path).st_mode, path) from error
    raise
  mode = os.fstat(descriptor).st_mode
  if not stat.S_ISREG(mode):
    os.close(descriptor)
    raise _irregular(mode, path)
  return descriptor


def _irregular(mode: int, path: str) -> OSError:
  kind = next((name for is_kind, name in _KINDS if is_kind(mode)), "of an unknown kind")
  return OSError(errno.EINVAL, f"It is {kind}, not a file", str(path))


def _link(partial, path):
  """Gives a file a second name, unless it is taken."""
  try:
    os.link(partial, path)
  except OSError as error:
    if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
      raise
    with open(path, "xb") as copy:  # a disk without links; a reader may see an incomplete file
      copy.write(pathlib.Path(partial).read_bytes())


class Flock:
  """A lock of the operating system, which frees it however the process ends."""

  def __init__(self, path, known: os.stat_result):
    """`known` is the `os.stat` of the file when it was locked."""
    self._path = path
    self._known = known

  def held(self) -> bool:
    """As `base.Lock`."""
    try:
      return os.path.samestat(self._known, os.stat(self._path))
    except FileNotFoundError:
      return False


class Appender:
  """A file that grows by whole pieces; `base.AppendFile`."""

  def __init__(self, path):
    """Opens the file, or creates it."""
    self._path = path
    self._file = open(path, "ab", buffering=0)  # noqa: SIM115 - closed in `close`

  def add(self, piece: bytes):
    """Writes a piece, or nothing at all."""
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
    # An open file survives its removal: a run whose folder was removed would lose its output.
    if not os.path.samestat(os.fstat(self._file.fileno()), os.stat(self._path)):
      raise FileNotFoundError(f"{self._path} was replaced by another file")

  def flush(self):
    """Returns once the file is on the disk; a full shared disk may fail only here."""
    os.fsync(self._file.fileno())

  def close(self):
    """Closes the file; ignores errors."""
    with contextlib.suppress(OSError):
      self._file.close()
