"""Reads the bytes of examples from any storage: whole files, and byte ranges of large ones.

Bytes that were read from buckets can be kept on this machine's disk (`keep`), for all sources of
this process, in a least-recently-used cache (`Copies`). Each entry is a file with a checksum, named
by a hash of the content's name. The files lie in 16 folders, so that a search for the oldest files
lists few. Several processes may share the cache.
"""

import contextlib
import errno
import fcntl
import functools
import hashlib
import logging
import os
import pathlib
import secrets
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from vit_jax.data import image_files
from vit_jax.storage import files
from vit_jax.storage.base import FileVersion, Seeking
from vit_jax.storage.paths import Path, UrlPath

_SUM = struct.Struct("<I")  # the checksum, before the content
_FOLDERS = "0123456789abcdef"
_TOTAL = "total"  # a file in each folder: its lock, and the bytes of all its other files
_KEPT = 7 / 8  # fraction left after a removal, so that not every new copy needs another one
_LARGEST = 1 / 8  # largest entry, as a fraction of a folder's bytes

_log = logging.getLogger(__name__)


class Copies:
  """Contents by name.

  Args:
    root: the folder, which is made when it is needed.
    most: most bytes of all files.
  """

  def __init__(self, root: pathlib.Path, most: int):
    self.root = root
    self.most = most
    self._each = most // len(_FOLDERS)
    self._usable = True

  def read(
    self, name: str, size: int, fetch: Callable[[], bytes | memoryview]
  ) -> bytes | memoryview:
    """The content of a name, from its copy if there is one, otherwise from `fetch`.

    Args:
      name: unique to this content, for all time.
      size: bytes of the content.
      fetch: returns the content.
    """
    digest = hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()
    file = self.root / digest[0] / digest[1:40]
    content = self._kept(file, name, size)
    if content is None:
      content = fetch()
      if self._usable and len(content) <= _LARGEST * self._each:
        self._keep(file, content)
    return content

  def _kept(self, file: pathlib.Path, name: str, size: int) -> bytes | None:
    try:
      with open(file, "rb", buffering=0) as stream:
        data = stream.read()
        os.utime(stream.fileno())  # marks it as used now
    except OSError:
      return None
    content = data[_SUM.size :]
    if len(content) == size and data[: _SUM.size] == _SUM.pack(zlib.crc32(content)):
      return content
    _log.warning("The copy of %s in %s is damaged, and is made again.", name, file)
    return None

  def _keep(self, file: pathlib.Path, content: bytes | memoryview):
    partial = file.with_name(f"{secrets.token_hex(8)}.partial")
    try:
      file.parent.mkdir(parents=True, exist_ok=True)
      with self._room(file.parent, _SUM.size + len(content)):
        try:
          with open(partial, "xb") as stream:
            stream.write(_SUM.pack(zlib.crc32(content)) + content)
          os.replace(partial, file)
        finally:
          partial.unlink(missing_ok=True)
    except OSError as error:
      self._usable = False
      _log.warning("No further images from buckets are kept on the disk: %s", error)

  @contextlib.contextmanager
  def _room(self, folder: pathlib.Path, size: int) -> Iterator[None]:
    """Adds the file that is written inside to the total; first makes room if there is too little.

    Holds the lock until the file is written, because a removal counts the files that it finds.
    """
    with open(folder / _TOTAL, "a+b", buffering=0) as stream:
      fcntl.flock(stream, fcntl.LOCK_EX)
      total = _number(stream) + size
      if not size < total <= self._each:  # too many bytes, or the total is unknown
        total = _removed(folder, int(_KEPT * self._each) - size) + size
      stream.truncate(0)
      stream.write(b"%d" % total)
      yield

  def bytes(self) -> int:
    """The bytes of all files."""
    total = 0
    for name in _FOLDERS:
      with contextlib.suppress(OSError), open(self.root / name / _TOTAL, "rb") as stream:
        total += _number(stream)
    return total


def _number(stream) -> int:
  """The number in a file; 0 if there is none, as after a crash."""
  stream.seek(0)
  text = stream.read(32)
  return int(text) if text.isdigit() else 0


def _removed(folder: pathlib.Path, room: int) -> int:
  """Removes the least recently used files until the rest fit into `room`; returns their bytes."""
  files = []
  with os.scandir(folder) as entries:
    for entry in entries:
      with contextlib.suppress(FileNotFoundError):  # another process has renamed it
        stat = entry.stat()
        files.append((stat.st_mtime_ns, stat.st_size, entry.path))
  files = sorted(file for file in files if os.path.basename(file[2]) != _TOTAL)
  total = sum(size for _, size, _ in files)
  for _, size, path in files:
    if total <= room:
      break
    pathlib.Path(path).unlink(missing_ok=True)
    total -= size
  return total


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
