"""Puts host batches on the devices as global, sharded arrays, ahead of the step.

`InStep` keeps the processes of an evaluation in step: all must take the same number of batches.
"""

import collections
import itertools
from collections.abc import Iterable, Iterator

import jax
import jax.numpy as jnp

from vit_jax.config import ConfigError, RunError
from vit_jax.data.images import BadImage
from vit_jax.data.pipeline import Batch, Batches


class InStep:
  """The batches of one process; after an error, batches in which no image counts.

  Otherwise the other processes would wait for this one at the next batch.

  Attributes:
    failure: why batches are missing; "" if none is.
  """

  def __init__(self, batches: Batches):
    self.failure = ""
    self._batches = batches
    self._left = batches.steps

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


def prefetch_to_device(batches: Iterable[dict], sharding, *, ahead: int) -> Iterator[dict]:
  """Makes global arrays from host batches, and keeps `ahead` of them in transfer to the devices.

  Each process passes its own rows; the result is the global batch, sharded by `sharding`.
  """

  def put_one(batch):
    with jax.transfer_guard("allow"):  # this transfer is intended, even inside a guarded loop
      return {
        name: jax.make_array_from_process_local_data(sharding, rows) for name, rows in batch.items()
      }

  put = map(put_one, batches)
  queue = collections.deque(itertools.islice(put, ahead))
  while queue:
    yield queue.popleft()
    queue.extend(itertools.islice(put, 1))


def normalize(images: jax.Array, dtype) -> jax.Array:
  """Maps pixels 0..255 to [-1, 1] by (x - 127.5) / 127.5, inside the compiled step."""
  return ((images.astype(jnp.float32) - 127.5) / 127.5).astype(dtype)
