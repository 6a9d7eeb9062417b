"""A file that is read from any place, for classes that say how its bytes are read."""

import io


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
