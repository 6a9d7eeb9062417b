"""Some examples of a source."""

from collections.abc import Sequence

from vit_jax.data.sources.base import Example, Source


class Selected:
  """The examples `rows` of `source`, in this order; `identity` is of these, as in `Source`."""

  def __init__(self, source: Source, rows: Sequence[int], identity: str):
    self._source, self._rows, self.identity = source, rows, identity
    self.class_names, self.multi_label = source.class_names, source.multi_label

  def __len__(self) -> int:
    return len(self._rows)

  def __getitem__(self, index: int) -> Example:
    return self._source[self._row(index)]

  def labels(self, index: int) -> tuple[int, ...]:
    """As the source has them."""
    return self._source.labels(self._row(index))

  def name(self, index: int) -> str:
    """As the source has it."""
    return self._source.name(self._row(index))

  def _row(self, index: int) -> int:
    if not 0 <= index < len(self):
      raise IndexError(f"There is no example {index} among {len(self)}.")
    return int(self._rows[index])
