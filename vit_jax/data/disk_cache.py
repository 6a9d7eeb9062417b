"""Copies of what was read from buckets, on this machine's disk: the least recently used go first.

Each copy is a file with a checksum, whose name is a hash of what it is a copy of. The files lie in
16 folders, so that whoever looks for the oldest ones lists few. Several processes may use them.
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

_SUM = struct.Struct("<I")  # before the content
_FOLDERS = "0123456789abcdef"
_TOTAL = "total"  # the file of each folder that is locked, and tells the bytes of the others
_KEPT = 7 / 8  # of the most bytes, after a removal, so that not each new copy needs one
_LARGEST = 1 / 8  # of a folder's bytes; a larger content is not kept

_log = logging.getLogger(__name__)


class Copies:
  """Contents by name.

  Args:
    root: the folder, which is made when it is needed.
    most: bytes of all files.
  """

  def __init__(self, root: pathlib.Path, most: int):
    self.root, self.most = root, most
    self._each, self._usable = most // len(_FOLDERS), True

  def read(
    self, name: str, size: int, fetch: Callable[[], bytes | memoryview]
  ) -> bytes | memoryview:
    """The content of a name, from its copy, or else from `fetch`.

    Args:
      name: tells this content from all others, at any time.
      size: of the content, bytes.
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
        os.utime(stream.fileno())  # it was used now
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
    """Counts a file that is written inside; if all are too many, removes the oldest ones first.

    Nobody else counts until it is there: who removes counts the files that it finds.
    """
    with open(folder / _TOTAL, "a+b", buffering=0) as stream:
      fcntl.flock(stream, fcntl.LOCK_EX)
      total = _number(stream) + size
      if not size < total <= self._each:  # or nothing is known
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
  """Removes the files that were used least recently, until the others have room; their bytes."""
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
