"""Reads the bytes of examples from any storage: whole files, and byte ranges of large ones.

Bytes that were read from buckets can be kept on this machine's disk (`keep`), for all sources of
this process.
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
  """Caches bytes from buckets on the disk, up to this number of gigabytes; 0: no cache."""
  global _copies
  _copies = Copies(pathlib.Path(os.path.expanduser(COPIES)), int(gigabytes * 1e9))


def kept() -> str:
  """A sentence on the copies from buckets; "" if none are kept."""
  if not _copies.most:
    return ""
  held = f"{_copies.bytes() / 1e9:,.2f}"
  most = f"{_copies.most / 1e9:,.2f}"
  return f'Images from buckets are kept in "{_copies.root}": {held} GB now, {most} GB at most.'


def part(path: Path, stamp: FileVersion, start: int, stop: int) -> bytes | memoryview:
  """As `files.part`, from a copy on the disk if there is one."""
  fetch = functools.partial(files.part, path, stamp, start, stop)
  if not _copies.most or not distant(path):
    return fetch()
  name = f"{path} {stamp.version} {stamp.size} {start} {stop}"
  return _copies.read(name, max(min(stop, stamp.size) - start, 0), fetch)


class FileVersions:
  """The versions of many files, in about 40 bytes each.

  None for files of this machine, because asking for them would make the listing of a folder slow.
  """

  def __init__(self, stamps: Iterable[FileVersion | None]):
    """Packs the stamps, in the order of the files."""
    self._packed = np.array([_packed(stamp) for stamp in stamps], bytes)

  def __getitem__(self, row: int) -> FileVersion | None:
    size, _, version = bytes(self._packed[row]).decode().partition(" ")
    if not size:
      return None
    return FileVersion(int(size), version)


def _packed(stamp: FileVersion | None) -> bytes:
  if not stamp:
    return b""
  return f"{stamp.size} {stamp.version}".encode()


def image(path: Path, stamp: FileVersion | None) -> bytes:
  """The bytes of an image file.

  Raises:
    ChangedError: the file has another stamp.
    OSError: it cannot be read, or has more than `image_files.MAX_BYTES` bytes.
  """
  if stamp is None:
    return files.read_bytes(path, most=image_files.MAX_BYTES)
  if stamp.size > image_files.MAX_BYTES:
    raise OSError(errno.EFBIG, f"It is larger than {image_files.MAX_BYTES:,} bytes", str(path))
  return bytes(part(path, stamp, 0, stamp.size))


def stamps_of(paths: Sequence[Path]) -> tuple[list[FileVersion], list[int]]:
  """As `looked_up`, but with stamps for existing files of this machine too."""
  stamps, missing = looked_up(paths)
  for number, path in enumerate(paths):
    if not stamps[number] and number not in missing:
      stamps[number] = files.stamp(path)
  return stamps, missing


class File(Seeking):
  """A file for a library that reads only the byte ranges that it needs."""

  def __init__(self, path: Path, stamp: FileVersion):
    """Reads nothing yet."""
    super().__init__(stamp.size)
    self._path = path
    self._stamp = stamp

  def readinto(self, buffer) -> int:
    """Fills the buffer by one request."""
    piece = part(self._path, self._stamp, self._place, self._place + len(buffer))
    buffer[: len(piece)] = piece
    self._place += len(piece)
    return len(piece)


def for_library(path: Path, stamp: FileVersion) -> str | File:
  """A file in the form that a library can read: its path, or a `File`.

  Raises:
    ChangedError: the file has another stamp.
  """
  if distant(path):
    return File(path, stamp)
  files.part(path, stamp, 0, 0)
  return str(path)


def looked_up(paths: Sequence[Path]) -> tuple[list[FileVersion | None], list[int]]:
  """The stamps of files, as in `FileVersions`, and the numbers of the missing files.

  Lists the folders of a bucket, which takes fewer requests than one for each file.
  """
  folders = list({path.parent: path for path in paths if distant(path)})
  listed = {}
  for scheme in {folder.scheme for folder in folders}:
    same_scheme = [folder for folder in folders if folder.scheme == scheme]
    found = files.at_once(same_scheme[0], _stamps_in, same_scheme)
    listed |= zip(same_scheme, found, strict=True)
  stamps = [listed.get(path.parent, {}).get(path.name) for path in paths]
  pairs = enumerate(zip(paths, stamps, strict=True))
  return stamps, [number for number, (path, stamp) in pairs if not _is_there(path, stamp)]


def _is_there(path: Path, stamp: FileVersion | None) -> bool:
  """Whether a file exists; `stamp` is its stamp in the listing of its folder."""
  if distant(path):
    return bool(stamp)
  return os.path.exists(path)


def _stamps_in(folder: Path) -> dict[str, FileVersion]:
  return {entry.name: entry.stamp for entry in files.scan(folder) if entry.is_file()}


def is_file(path: Path) -> bool:
  """Whether a file is at a path; False for a path that no file can have."""
  if isinstance(path, UrlPath):
    return files.is_file(path)
  return os.path.isfile(path)


def distant(path: Path) -> bool:
  """Whether reading waits for a network, so that many files should be read at once."""
  return not files.storage_of(path).direct
