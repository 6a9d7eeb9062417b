"""Growing files in a bucket: one object for each part."""

import contextlib
import re

from vit_jax.extras.buckets.client import NEW, Found

_PART = re.compile(r"(?P<path>.+)\.parts/[0-9]{8}\.[^/]+")


def plain_name(path: str) -> str:
  """The path of the file that a part belongs to; any other path unchanged."""
  part = _PART.fullmatch(path)
  return part["path"] if part else path


class Parts:
  """The parts of one file; `base.AppendFile` after `begin`.

  The name of a part ends with the name of the file, so that TensorBoard recognizes the parts of its
  event files. When the file is closed, its parts become one object.
  """

  def __init__(self, bucket, path):
    """Makes no request; `bucket` is the `Client` of its service."""
    self._bucket = bucket
    self._path = path
    self._next = 0  # the number of the next part
    self._last = ""  # the ETag of the last part
    self._doubt: bytes | None = None  # the next piece, if it may have been written already

  @property
  def _folder(self):
    return self._path.with_name(f"{self._path.name}.parts")

  def _part(self, number):
    return self._folder / f"{number:08d}.{self._path.name}"

  def found(self) -> list[Found]:
    """The parts, in order."""
    return sorted(self._bucket.listed(self._folder))

  def remove(self):
    """Removes all parts."""
    self._bucket.delete_all(self._path, self.found())

  def begin(self):
    """Opens the file for appending, or creates it."""
    found = self._whole()
    if found:
      self.remove()  # leftovers of a killed process
      self._write(self._bucket.read(self._path, found, 0, found.size))
      self._bucket.delete(self._path)
    elif parts := self.found():
      last = parts[-1]
      name = last.key.rpartition("/")[2]
      self._next = int(name[:8]) + 1
      self._last = last.e_tag
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
    self._next += 1
    self._doubt = None

  def add(self, piece: bytes):
    """Writes a piece atomically."""
    self._check_place()
    self._write(piece)

  def _check_place(self):
    if self._bucket.stat(self._part(self._next - 1)).e_tag != self._last:
      raise FileNotFoundError(f"{self._path} was replaced by another file")

  def flush(self):
    """Does nothing: every added piece is already stored."""

  def close(self):
    """Joins the parts into one object; after an error, which is ignored, the parts stay."""
    with contextlib.suppress(OSError):
      self._check_place()
      parts = self.found()
      pieces = self._bucket.at_once(lambda at: self._bucket.read(self._path, at, 0, at.size), parts)
      self._bucket.write(self._path, b"".join(pieces), NEW)
      self._bucket.delete_all(self._path, parts)
