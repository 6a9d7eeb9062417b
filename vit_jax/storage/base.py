"""What a kind of storage must do, so that a run can be kept on it.

A new kind is one file with an instance of a class with the members of `Storage`, and one line in
`registry.STORAGES` that leads to the instance: `"gs": "vit_jax.extras.buckets.services:GOOGLE"`
serves all paths gs://... Only `storage.files` calls these members; everything else calls
`storage.files`. For another service of buckets, write a `Service` (`extras/buckets/services.py`)
instead: all that is below follows from it.

What each kind must promise, because a checkpoint and the details of an evaluation rely on it:

- Nobody sees a folder while it is being renamed, not even in a listing: not if the rename is many
  copies, and not if a process was killed between two of them.
- Of several processes that rename a folder to one path, one succeeds.
- A lock becomes free however its holder ends. Where no operating system frees it, it must be found
  out that the holder is dead, and a holder that was taken for dead must find out that it holds the
  lock no more.
- What one process has written, all processes of the run read, on whichever host they are.

`Seeking` is a file that is read from any place; its subclasses say how its bytes are read.
"""

import contextlib
import errno
import io
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, BinaryIO, NamedTuple, Protocol

from vit_jax.process.errors import RunError, StorageError
from vit_jax.storage.paths import Path


class Seeking(io.RawIOBase):
  """A file of a known size; a subclass has `readinto`, which moves `_place`."""

  def __init__(self, size: int):
    """Begins at the first of `size` bytes."""
    self._size, self._place = size, 0

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


FILE, FOLDER, OTHER, NOTHING = "file", "folder", "other", ""  # what can be at a path


class UnreachableError(OSError):
  """A storage cannot be used, or not now, so nothing is known of what lies at a path.

  Whoever takes other OSErrors of a read for damage must let this one pass.
  """


class CannotReadError(UnreachableError, StorageError):
  """What lies at a path cannot be read now: nothing is known of it, so nothing is done to it."""

  def __str__(self) -> str:
    return (
      f"{self.filename} cannot be read now ({self.strerror}); nothing was moved or begun anew. "
      "Make it readable, then start the same command again."
    )


# What tells something of a path or its content; all other errors only say that a read failed.
_OF_CONTENT = {
  *(None, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG),
  *(errno.EINVAL, errno.ENXIO, errno.EFBIG),  # not a regular file, or too large: `local`, `files`
}


@contextlib.contextmanager
def reading(path: Path | str) -> Iterator[None]:
  """Lets the errors pass that tell what lies at a path, such as nothing or a folder.

  Raises:
    CannotReadError: in place of every other OSError, such as EIO, EACCES, EMFILE or ESTALE.
  """
  try:
    yield
  except UnreachableError:
    raise
  except OSError as error:
    if error.errno in _OF_CONTENT:
      raise
    raise CannotReadError(error.errno, error.strerror, str(error.filename or path)) from error


class ChangedError(RunError):
  """A file is no longer what it was when its stamp was taken: replaced, changed or removed."""

  def __init__(self, path: Path | str):
    super().__init__(f'"{path}" was changed or removed after it was opened; start again.')


class FileVersion(NamedTuple):
  """What tells a file from what it is after a change."""

  size: int
  version: str


class Entry(Protocol):
  """What lies in a folder, as `os.DirEntry`; links are followed.

  A storage that knows the stamp without another request has it as the attribute `stamp`.
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
    """Returns once everything that was added would survive a crash of the machine."""

  def close(self):
    """Closes the file; ignores errors, so that they do not hide an earlier one."""


class Lock(Protocol):
  """A lock that this process holds."""

  def held(self) -> bool:
    """Whether it is still where this process put it; OSError: that cannot be known."""


class Storage(Protocol):
  """A kind of storage. All members raise OSError, with `errno` and `filename`.

  Attributes:
    direct: whether libraries can read and write at its paths by themselves, as JAX's profiler. If
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
    """What lies in a folder, in any order."""

  def at_once(self, ask: Callable[[Any], Any], items: Iterable) -> list:
    """What `ask` returns for each item: at once, if each waits for an answer of the storage."""

  def names(self, folder: Path) -> list[str]:
    """The names of what lies in a folder, in any order."""

  def sizes_below(self, folder: Path) -> Iterator[tuple[str, int]]:
    """By path within a folder, such as "state/d/1", the bytes of all files below it."""

  def kvstore(self, folder: Path) -> dict:
    """A folder as TensorStore's key-value store, in JSON; its "path" ends with a slash.

    Checkpoints are written and read there.
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

  def sync(self, path: Path):
    """Returns once a file, or the names in a folder, would survive a crash of the machine.

    Does nothing where whatever was written is safe already, as in a bucket.
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

    Removes also what a killed process has left at a path where nobody sees anything.
    """

  def lock(self, path: Path) -> AbstractContextManager[Lock]:
    """Holds a lock, which is free again however this process ends.

    Raises:
      BlockingIOError: another process holds it.
    """
