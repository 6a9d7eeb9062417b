"""Host batches of an evaluation by several processes, which must all take the same number."""

from collections.abc import Iterator

from vit_jax.config import ConfigError, RunError
from vit_jax.data.images import BadImage
from vit_jax.data.pipeline import Batch, Batches


class InStep:
  """The batches of one process; after an error, batches in which no image counts.

  Without them the other processes would wait for this one in the next batch.

  Attributes:
    failure: why batches are missing; "": none is.
  """

  def __init__(self, batches: Batches):
    self.failure = ""
    self._batches, self._left = batches, batches.steps

  def __iter__(self) -> Iterator[Batch]:
    return self

  def __next__(self) -> Batch:
    if not self._left:
      raise StopIteration
    self._left -= 1
    if not self.failure:
      try:
        return next(self._batches)
      except (BadImage, OSError, ConfigError, RunError) as error:
        self.failure = str(error)
    return self._batches.blank()

  def close(self):
    """Ends the threads; no further batches are available."""
    self._batches.close()
