"""Puts host batches on the devices as global, sharded arrays, ahead of the step."""

import collections
import itertools
from collections.abc import Iterable, Iterator

import jax
import jax.numpy as jnp


def prefetch_to_device(batches: Iterable[dict], sharding, *, ahead: int) -> Iterator[dict]:
  """Makes global arrays from host batches, and keeps `ahead` of them in transfer to the devices.

  Each process gives its own rows; the result is the global batch, split as `sharding` says.
  """

  def put_one(batch):
    with jax.transfer_guard("allow"):  # this transfer is intended, also inside a guarded loop
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
