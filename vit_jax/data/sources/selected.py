"""Some examples of a source."""

from collections.abc import Sequence

from vit_jax.data.sources.base import Example, Source


class Selected:
  """The examples `rows` of `source`, in this order."""

  def __init__(self, source: Source, rows: Sequence[int]):
    self._source, self._rows = source, rows
    self.class_names, self.multi_label = source.class_names, source.multi_label
    self.identity = f"{len(rows)} of {source.identity}"

  def __len__(self) -> int:
    return len(self._rows)

  def __getitem__(self, index: int) -> Example:
    return self._source[int(self._rows[index])]

  def labels(self, index: int) -> tuple[int, ...]:
    """As the source has them."""
    return self._source.labels(int(self._rows[index]))

  def name(self, index: int) -> str:
    """As the source has it."""
    return self._source.name(int(self._rows[index]))
