"""The bytes of examples, wherever they lie: whole files, and parts of large ones.

What was read from a bucket may be kept on this machine's disk (`keep`), for all sources of this
process.
"""

import errno
import functools
import os
import pathlib
from collections.abc import Iterable, Sequence

import numpy as np

from vit_jax.data import image_files
from vit_jax.data.disk_cache import Copies
from vit_jax.storage import files
from vit_jax.storage.base import FileVersion, Seeking
from vit_jax.storage.paths import Path, UrlPath

COPIES = pathlib.Path("~/.cache/vit_jax/buckets")
_copies = Copies(COPIES, 0)  # none


def keep(gigabytes: float):
  """Keeps what is read from buckets on the disk, at most so much; 0: nothing."""
  global _copies
  _copies = Copies(pathlib.Path(os.path.expanduser(COPIES)), int(gigabytes * 1e9))


def kept() -> str:
  """What is kept of buckets, as a sentence; "" if nothing is."""
  if not _copies.most:
    return ""
  held, most = (f"{size / 1e9:,.2f}" for size in (_copies.bytes(), _copies.most))
  return f'Images from buckets are kept in "{_copies.root}": {held} GB now, {most} GB at most.'


def part(path: Path, stamp: FileVersion, start: int, stop: int) -> bytes | memoryview:
  """As `files.part`, from a copy on the disk if there is one."""
  fetch = functools.partial(files.part, path, stamp, start, stop)
  if not _copies.most or not distant(path):
    return fetch()
  name = f"{path} {stamp.version} {stamp.size} {start} {stop}"
  return _copies.read(name, max(min(stop, stamp.size) - start, 0), fetch)


class FileVersions:
  """What tells each of many files from what it is after a change; 40 bytes or so for each.

  Files of this machine have none: asking for it would make the listing of a folder slow.
  """

  def __init__(self, stamps: Iterable[FileVersion | None]):
    """Packs them, in the order of the files."""
    packed = (f"{stamp.size} {stamp.version}" if stamp else "" for stamp in stamps)
    self._packed = np.array([text.encode() for text in packed], bytes)

  def __getitem__(self, row: int) -> FileVersion | None:
    size, _, version = bytes(self._packed[row]).decode().partition(" ")
    return FileVersion(int(size), version) if size else None


def image(path: Path, stamp: FileVersion | None) -> bytes:
  """The bytes of an image file; one of more than `image_files.MAX_BYTES` is an OSError.

  Raises:
    ChangedError: it has another stamp than the given one.
    OSError: it cannot be read.
  """
  if stamp is None:
    return files.read_bytes(path, most=image_files.MAX_BYTES)
  if stamp.size > image_files.MAX_BYTES:
    raise OSError(errno.EFBIG, f"It is larger than {image_files.MAX_BYTES:,} bytes", str(path))
  return bytes(part(path, stamp, 0, stamp.size))


def stamps_of(paths: Sequence[Path]) -> tuple[list[FileVersion], list[int]]:
  """As `looked_up`, but files of this machine have stamps too, if they are there."""
  stamps, missing = looked_up(paths)
  there = enumerate(zip(paths, stamps, strict=True))
  return [at or (None if i in missing else files.stamp(path)) for i, (path, at) in there], missing


class File(Seeking):
  """A file that is read where it is wanted, by a library that knows where."""

  def __init__(self, path: Path, stamp: FileVersion):
    """Reads nothing yet."""
    super().__init__(stamp.size)
    self._path, self._stamp = path, stamp

  def readinto(self, buffer) -> int:
    """Reads all that is wanted by one request."""
    piece = part(self._path, self._stamp, self._place, self._place + len(buffer))
    buffer[: len(piece)] = piece
    self._place += len(piece)
    return len(piece)


def for_library(path: Path, stamp: FileVersion) -> str | File:
  """A file for a library that reads parts of it: its path, or a `File`.

  Raises:
    ChangedError: it has another stamp.
  """
  if distant(path):
    return File(path, stamp)
  files.part(path, stamp, 0, 0)
  return str(path)


def looked_up(paths: Sequence[Path]) -> tuple[list[FileVersion | None], list[int]]:
  """The stamps of files, as in `FileVersions`, and the numbers of those that are not there.

  Folders of a bucket are listed, which takes fewer requests than to ask for each file.
  """
  folders = list({path.parent: path for path in paths if distant(path)})
  listed = {}
  for scheme in {folder.scheme for folder in folders}:
    of_it = [folder for folder in folders if folder.scheme == scheme]
    listed |= zip(of_it, files.at_once(of_it[0], _stamps_in, of_it), strict=True)
  stamps = [listed[p.parent].get(p.name) if p.parent in listed else None for p in paths]
  there = lambda path, stamp: bool(stamp) if distant(path) else os.path.exists(path)
  pairs = enumerate(zip(paths, stamps, strict=True))
  return stamps, [number for number, pair in pairs if not there(*pair)]


def _stamps_in(folder: Path) -> dict[str, FileVersion]:
  return {entry.name: entry.stamp for entry in files.scan(folder) if entry.is_file()}


def is_file(path: Path) -> bool:
  """Whether a file is at a path; a path that cannot be one is none."""
  return files.is_file(path) if isinstance(path, UrlPath) else os.path.isfile(path)


def distant(path: Path) -> bool:
  """Whether reading waits for a network, so that many reads should be under way at once."""
  return not files.storage_of(path).direct
