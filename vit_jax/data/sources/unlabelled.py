"""A source without its labels."""

from collections.abc import Iterator

from vit_jax.data.sources.base import Block, Example, Source


class Unlabelled:
  """The examples of `source` with no labels."""

  class_names = ()
  multi_label = False

  def __init__(self, source: Source):
    self._source, self.identity = source, f"{source.identity}, without labels"
    self.notes = getattr(source, "notes", ())

  def __len__(self) -> int:
    return len(self._source)

  def __getitem__(self, index: int) -> Example:
    return self._source[index]._replace(labels=())

  def labels(self, index: int) -> tuple[int, ...]:
    """None."""
    del index
    return ()

  def name(self, index: int) -> str:
    """The name that the source gives."""
    return self._source.name(index)

  def blocks(self) -> Iterator[Block]:
    """The blocks of the source."""
    return self._source.blocks()
