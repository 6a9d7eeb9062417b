"""A source with the classes of a head."""

from collections.abc import Iterator, Mapping, Sequence

from vit_jax.data.sources.base import Block, Example, Source


class Renumbered:
  """The examples of a source, with other numbers for its classes.

  Args:
    source: the examples.
    numbers: {number of a class in the source: new number}; a label of no class becomes -1.
    class_names: the names by new number; the source may lack some of these classes.
  """

  def __init__(self, source: Source, numbers: Mapping[int, int], class_names: Sequence[str]):
    self._source, self._numbers = source, dict(numbers)
    self.class_names, self.multi_label = tuple(class_names), source.multi_label
    self.identity = source.identity

  def __len__(self) -> int:
    return len(self._source)

  def __getitem__(self, index: int) -> Example:
    example = self._source[index]
    return example._replace(labels=self._renumbered(example.labels))

  def labels(self, index: int) -> tuple[int, ...]:
    """The labels by their new numbers."""
    return self._renumbered(self._source.labels(index))

  def name(self, index: int) -> str:
    """The name that the source gives."""
    return self._source.name(index)

  def blocks(self) -> Iterator[Block]:
    """The blocks of the source."""
    return self._source.blocks()

  def _renumbered(self, labels):
    return tuple(self._numbers.get(label, -1) for label in labels)
