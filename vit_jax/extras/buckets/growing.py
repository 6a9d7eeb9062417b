"""Files that grow in a bucket: one object for each piece."""

import contextlib
import re

from vit_jax.extras.buckets.client import NEW, Found

_PART = re.compile(r"(?P<path>.+)\.parts/[0-9]{8}\.[^/]+")


def plain_name(path: str) -> str:
  """The path of the file that a part is of; any other path as it is."""
  part = _PART.fullmatch(path)
  return part["path"] if part else path


class Parts:
  """The parts of one file; `base.AppendFile` after `begin`.

  The name of a part ends with the name of the file, so that TensorBoard takes those of its events
  for such files. When the file is closed, its parts become one object.
  """

  def __init__(self, bucket, path):
    """Makes no request; `bucket` is the `Client` of its service."""
    self._bucket, self._path = bucket, path
    self._next, self._last = 0, ""  # the number of the next part, the ETag of the last one
    self._doubt: bytes | None = None  # the next piece, if it may have been written already

  @property
  def _folder(self):
    return self._path.with_name(f"{self._path.name}.parts")

  def _part(self, number):
    return self._folder / f"{number:08d}.{self._path.name}"

  def found(self) -> list[Found]:
    """The parts, in their order."""
    return sorted(self._bucket.listed(self._folder))

  def remove(self):
    """Removes all parts."""
    self._bucket.delete_all(self._path, self.found())

  def begin(self):
    """Makes the file one that grows, or creates it."""
    found = self._whole()
    if found:
      self.remove()  # they are what a killed process has left
      self._write(self._bucket.read(self._path, found, 0, found.size))
      self._bucket.delete(self._path)
    elif parts := self.found():
      self._next, self._last = int(parts[-1].key.rpartition("/")[2][:8]) + 1, parts[-1].e_tag
    else:
      self._write(b"")

  def _whole(self) -> Found | None:
    try:
      return self._bucket.stat(self._path)
    except FileNotFoundError:
      return None

  def _write(self, piece):
    part = self._part(self._next)
    try:
      self._last = self._bucket.write(part, piece, NEW).e_tag
    except FileExistsError:
      if piece != self._doubt:
        raise
      found = self._bucket.stat(part)  # it was written, and no answer came
      if self._bucket.read(part, found, 0, found.size) != piece:
        raise
      self._last = found.e_tag
    except OSError:
      self._doubt = piece
      raise
    self._next, self._doubt = self._next + 1, None

  def add(self, piece: bytes):
    """Writes a piece, or nothing at all."""
    self._check_place()
    self._write(piece)

  def _check_place(self):
    if self._bucket.stat(self._part(self._next - 1)).e_tag != self._last:
      raise FileNotFoundError(f"{self._path} was replaced by another file")

  def flush(self):
    """Has nothing to do: what was added is safe."""

  def close(self):
    """Makes one object of the parts; ignores errors, after which the parts stay."""
    with contextlib.suppress(OSError):
      self._check_place()
      parts = self.found()
      pieces = self._bucket.at_once(lambda at: self._bucket.read(self._path, at, 0, at.size), parts)
      self._bucket.write(self._path, b"".join(pieces), NEW)
      self._bucket.delete_all(self._path, parts)
