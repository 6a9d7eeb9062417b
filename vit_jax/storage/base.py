"""What a kind of storage must do, so that a run can be kept on it; how failures are tried again."""

import contextlib
import errno
import io
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, BinaryIO, NamedTuple, Protocol, TypeVar

from vit_jax.process.errors import RunError, StorageError
from vit_jax.storage.paths import Path


class Seeking(io.RawIOBase):
  """A file of a known size; a subclass has `readinto`, which moves `_place`."""

  def __init__(self, size: int):
    """Begins at the first of `size` bytes."""
    self._size = size
    self._place = 0

  def readable(self) -> bool:
    """True."""
    return True

  def seekable(self) -> bool:
    """True."""
    return True

  def tell(self) -> int:
    """The place of the next byte."""
    return self._place

  def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
    """Moves to a place, and returns it."""
    base = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}[whence]
    self._place = max(base + offset, 0)
    return self._place


# The kinds of `Storage.kind`.
FILE = "file"
FOLDER = "folder"
OTHER = "other"
NOTHING = ""


class UnreachableError(OSError):
  """A storage cannot be used, at least now, so the content of a path is unknown.

  Code that treats other OSErrors of a read as damage must let this one pass.
  """


class CannotReadError(UnreachableError, StorageError):
  """A path cannot be read now; its content is unknown, so it is left untouched."""

  def __str__(self) -> str:
    return (
      f"{self.filename} cannot be read now ({self.strerror}); nothing was moved or begun anew. "
      "Make it readable, then start the same command again."
    )


# Errors that say something about a path or its content; all others only say that a read failed.
_OF_CONTENT = {
  *(None, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG),
  *(errno.EINVAL, errno.ENXIO, errno.EFBIG),  # not a regular file, or too large: `local`, `files`
}


@contextlib.contextmanager
def reading(path: Path | str) -> Iterator[None]:
  """Lets errors pass that say what is at a path, such as nothing or a folder.

  Raises:
    CannotReadError: instead of every other OSError, such as EIO, EACCES, EMFILE or ESTALE.
  """
  try:
    yield
  except UnreachableError:
    raise
  except OSError as error:
    if error.errno in _OF_CONTENT:
      raise
    raise CannotReadError(error.errno, error.strerror, str(error.filename or path)) from error


@contextlib.contextmanager
def raised_as(
  kind: type[Exception], message: Callable[[Exception], str], *errors: type[Exception]
) -> Iterator[None]:
  """Replaces the errors of a read by one that names what was read; lets UnreachableError pass.

  Args:
    kind: the type of the new error.
    message: makes the message of the new error from the old error.
    errors: the types of the errors to replace.
  """
  try:
    yield
  except UnreachableError:
    raise
  except errors as error:
    raise kind(message(error)) from error


class ChangedError(RunError):
  """A file was replaced, changed or removed since its stamp was taken."""

  def __init__(self, path: Path | str):
    super().__init__(f'"{path}" was changed or removed after it was opened; start again.')


class FileVersion(NamedTuple):
  """The version of a file; another one after a change."""

  size: int
  version: str


class Entry(Protocol):
  """An entry of a folder, as `os.DirEntry`; links are followed.

  If the storage knows the stamp without another request, it is the attribute `stamp`.
  """

  name: str

  def is_dir(self) -> bool:
    """Whether it is a folder."""

  def is_file(self) -> bool:
    """Whether it is a file."""

  def is_symlink(self) -> bool:
    """Whether it is a link."""


class AppendFile(Protocol):
  """A file that grows by whole pieces."""

  def add(self, piece: bytes):
    """Writes a piece, or nothing at all.

    Raises:
      OSError: the file cannot be written, or is no longer at its path.
    """

  def flush(self):
    """Returns once everything added would survive a crash of the machine."""

  def close(self):
    """Closes the file; ignores errors, so that they do not hide an earlier one."""


class Lock(Protocol):
  """A lock that this process holds."""

  def held(self) -> bool:
    """Whether this process still holds it; OSError: unknown."""


class Storage(Protocol):
  """A kind of storage. All members raise OSError, with `errno` and `filename`.

  Attributes:
    direct: whether libraries such as JAX's profiler can read and write its paths by themselves. If
      not, they work in a folder of this machine, which is copied.
  """

  direct: bool

  def open(self, path: Path) -> BinaryIO:
    """Opens a file for reading; must not wait, as opening a pipe would."""

  def kind(self, path: Path) -> str:
    """`FILE`, `FOLDER`, `OTHER` (such as a pipe or a broken link) or `NOTHING`."""

  def stamp(self, path: Path) -> FileVersion:
    """The stamp of a file."""

  def part(self, path: Path, stamp: FileVersion, start: int, stop: int) -> bytes | memoryview:
    """The bytes from `start` to before `stop` of a file; fewer where it ends before.

    Raises:
      ChangedError: the file has another stamp, or is not there.
    """

  def scan(self, folder: Path) -> Iterator[Entry]:
    """The entries of a folder, in any order."""

  def at_once(self, ask: Callable[[Any], Any], items: Iterable) -> list:
    """The results of `ask` for each item; in parallel, if each call waits for the storage."""

  def names(self, folder: Path) -> list[str]:
    """The names of the entries of a folder, in any order."""

  def sizes_below(self, folder: Path) -> Iterator[tuple[str, int]]:
    """The path within a folder, such as "state/d/1", and the bytes of every file below it."""

  def kvstore(self, folder: Path) -> dict:
    """A folder as the JSON of a TensorStore key-value store; its "path" ends with a slash.

    Used to write and read checkpoints.
    """

  def make_folder(self, path: Path):
    """Makes a folder and its parents, if they do not exist."""

  def partial(self, path: Path) -> str:
    """A new path of this machine, for a file that will be `put` at `path`."""

  def put(self, partial: str, path: Path, *, new: bool):
    """Makes a finished file of this machine appear at `path`: whole, at once, safe from a crash.

    Args:
      partial: a path of `partial`; it may be moved from there.
      path: where.
      new: whether to raise FileExistsError if something is at `path`, even if another process put
        it there just now; otherwise it is replaced.
    """

  def put_bytes(self, path: Path, content: bytes):
    """As `put`, for bytes; only called if the storage is not `direct`.

    This one needs a file of this machine; another need not.
    """
    partial = self.partial(path)
    try:
      with open(partial, "wb") as file:
        file.write(content)
      self.put(partial, path, new=False)
    finally:
      with contextlib.suppress(FileNotFoundError):  # `put` has moved it
        os.unlink(partial)

  def sync(self, path: Path):
    """Returns once a file, or the names in a folder, would survive a crash of the machine.

    Does nothing if written data are always safe, as in a bucket.
    """

  def append(self, path: Path) -> AppendFile:
    """Opens a file that grows, or creates it."""

  def rename(self, path: Path, target: Path):
    """Renames a file or folder; the target appears at once.

    Raises `errno.ENOTEMPTY` or EEXIST if the target is a folder that is not empty, or that another
    process is renaming a folder to. Then nothing has changed.
    """

  def remove(self, path: Path):
    """Removes a file, or a folder as far as possible; a missing path is no error.

    Also removes invisible leftovers of a killed process at that path. If the storage is not
    `direct`, a folder disappears at once for all readers.
    """

  def lock(self, path: Path) -> AbstractContextManager[Lock]:
    """Holds a lock, which becomes free however this process ends.

    Raises:
      BlockingIOError: another process holds it.
    """

  def is_locked(self, path: Path) -> bool:
    """Whether a process holds a lock; where that can be seen without taking it, it is not taken."""
    if self.kind(path) == NOTHING:
      return False
    try:
      with self.lock(path):
        return False
    except BlockingIOError:
      return True


# Seconds between two tries.
FIRST = 1.0
MAX_PAUSE = 60.0


class Retry:
  """Times the tries after a failure: the pauses double, and the last try is at the end of the time.

  Attributes:
    failing: whether the last try failed.
  """

  def __init__(self, seconds: float, clock=time.monotonic):
    """Makes the timing of one kind of write.

    Args:
      seconds: how long after the first failure a try may be made; 0: never.
      clock: seconds, monotonic.
    """
    self.seconds = seconds
    self.failing = False
    self._clock = clock
    self._end = self._pause = self._next = 0.0

  def failed(self) -> bool:
    """Notes a failure, and returns whether there is time for another try."""
    now = self._clock()
    if not self.failing:
      self.failing = True
      self._end = now + self.seconds
      self._pause = FIRST / 2
    self._pause = min(2 * self._pause, MAX_PAUSE, self._end - now)
    self._next = now + self._pause
    return self._pause > 0

  def succeeded(self):
    """Notes that a try succeeded."""
    self.failing = False

  def due(self) -> bool:
    """Whether it failed and is to be tried again now."""
    return self.failing and self._clock() >= self._next

  def wait(self, alive: Callable[[], None]):
    """Waits until the next try is due, and calls `alive` every second."""
    while not self.due():
      alive()
      time.sleep(min(max(self._next - self._clock(), 0.0), 1.0))

  def in_words(self) -> str:
    """A sentence on how long it was tried, with a space before it; "" if it was tried once."""
    if not self.seconds:
      return ""
    return f" It was tried again for {self.seconds:g} s."


Value = TypeVar("Value")

PAUSES = (0.1, 0.5, 1.5)  # seconds before the second, third and fourth try
# Not the errors of a missing file, a folder, or missing permission: these would occur again.
MAY_PASS = frozenset(
  {
    errno.EIO,
    errno.ESTALE,
    errno.ETIMEDOUT,
    errno.EAGAIN,
    errno.EINTR,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENETDOWN,
    errno.ENETUNREACH,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.ECONNRESET,
    errno.ECONNREFUSED,
    errno.ECONNABORTED,
    errno.ENOTCONN,  # of a folder of sshfs or gcsfuse
  }
)

_log = logging.getLogger(__name__)


def retried(
  attempt: Callable[[], Value],
  name: Callable[[], str],
  may_pass: Callable[[Exception], bool] = lambda error: getattr(error, "errno", None) in MAY_PASS,
) -> Value:
  """Calls `attempt` up to four times within about 2 seconds, and returns its result.

  Args:
    attempt: reads something.
    name: names what is read, for the log.
    may_pass: whether an error may be gone at the next try; all others are raised at once.

  Raises:
    Exception: the error of the last try.
  """
  for pause in PAUSES:
    try:
      return attempt()
    except Exception as error:
      if not may_pass(error):
        raise
      _log.warning("Reading %s is tried again in %g s: %s", name(), pause, error)
      time.sleep(pause)
  return attempt()
