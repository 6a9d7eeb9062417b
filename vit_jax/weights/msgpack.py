"""Weights as msgpack, in Flax's encoding: nested maps of arrays."""

import mmap
import pathlib

import flax.serialization
import jax
import msgpack
import numpy as np
from flax.serialization import MAX_CHUNK_SIZE

from vit_jax.models.stacking import unstack_blocks
from vit_jax.storage.files import write_bytes
from vit_jax.storage.tree import flatten
from vit_jax.weights import arrays, published
from vit_jax.weights.card import Card

MAX_AXES = 16


def load(path: pathlib.Path) -> dict:
  """Reads a tree of NumPy arrays.

  Raises:
    ValueError: the file holds something else, or is cut short.
  """
  with arrays.reading(path, "msgpack"):
    arrays.check_bytes(path)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
      _look_through(file, len(data))
      tree = flax.serialization.msgpack_restore(data)
    if not _is_params(tree):
      raise ValueError("it does not hold a tree of parameters")
    return published.from_published(flatten(tree))


def save(path: pathlib.Path, params: dict, known: Card | None = None):
  """Writes a tree of arrays; stacked blocks are unstacked."""
  data = flax.serialization.msgpack_serialize(jax.tree.map(np.asarray, unstack_blocks(params)))
  write_bytes(path, data)


def _look_through(file, size: int):
  """Refuses a file that is not a tree of arrays, before memory is allocated for its claims."""
  unpacker = msgpack.Unpacker(
    file,
    object_pairs_hook=_distinct,
    ext_hook=_check_array,
    max_buffer_size=2 * MAX_CHUNK_SIZE,
    max_ext_len=MAX_CHUNK_SIZE + 2**10,  # Flax splits larger arrays
    max_map_len=arrays.MAX_ARRAYS,
    max_array_len=0,
    max_bin_len=0,
    max_str_len=4 * arrays.MAX_NAME,  # bytes
  )
  unpacker.unpack()
  if unpacker.tell() != size:
    raise ValueError(f"its content ends after {unpacker.tell():,} of its {size:,} bytes")


def _check_array(code, content):
  if code != 1:  # Flax's code for arrays
    raise ValueError(f"it holds something of type {code}, which is not an array")
  msgpack.unpackb(content, raw=True, max_array_len=MAX_AXES)


def _distinct(pairs) -> dict:
  """A map without duplicate names; the library would silently take the last of them."""
  names = [name for name, _ in pairs]
  if len(set(names)) < len(names):
    raise ValueError("two of its names are the same")
  return dict(pairs)


def _is_params(tree) -> bool:
  if isinstance(tree, dict):
    return bool(tree) and all(_is_params(value) for value in tree.values())
  return isinstance(tree, np.ndarray)
