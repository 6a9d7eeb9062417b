"""A least-recently-used cache, on this machine's disk, of bytes that were read from buckets.

Each entry is a file with a checksum, named by a hash of the content's name. The files lie in 16
folders, so that a search for the oldest files lists few. Several processes may share the cache.
"""

import contextlib
import fcntl
import hashlib
import logging
import os
import pathlib
import secrets
import struct
import zlib
from collections.abc import Callable, Iterator

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
