"""An entry in a folder of a bucket."""

from typing import NamedTuple

from vit_jax.storage.base import FileVersion


class Entry(NamedTuple):
  """An object, or a folder, which has no stamp; `base.Entry`."""

  name: str
  stamp: FileVersion | None = None

  def is_dir(self) -> bool:
    """Whether it is a folder."""
    return self.stamp is None

  def is_file(self) -> bool:
    """Whether it is an object."""
    return self.stamp is not None

  def is_symlink(self) -> bool:
    """False."""
    return False
