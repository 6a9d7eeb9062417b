"""Weights as msgpack, in Flax's encoding: nested maps of arrays."""

import mmap
import pathlib

import flax.serialization
import jax
import msgpack
import numpy as np
from flax.serialization import MAX_CHUNK_SIZE

from vit_jax.storage.files import write_bytes
from vit_jax.storage.tree import flatten
from vit_jax.weights import arrays, published
from vit_jax.weights.card import Card
from vit_jax.weights.format import WeightFormat

ARRAY = 1  # Flax's code for an array
MAX_AXES = 16


def _load(path: pathlib.Path) -> dict:
  arrays.check_bytes(path)
  with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
    check_claims(file, len(data))
    tree = flax.serialization.msgpack_restore(data)
  flat = {"": tree}
  if isinstance(tree, dict):
    flat = flatten(tree)
  if not all(isinstance(array, np.ndarray) for array in flat.values()):
    raise ValueError("it does not hold a tree of arrays")
  return published.from_published(flat)


def _save(path: pathlib.Path, params: dict, card: Card | None):
  write_bytes(path, flax.serialization.msgpack_serialize(jax.tree.map(np.asarray, params)))


def check_claims(file, size: int):
  """Checks the structure of a file of `size` bytes, before memory is allocated for its arrays.

  Raises:
    ValueError: it holds something other than maps of arrays, or too many.
  """
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
  if code != ARRAY:
    raise ValueError(f"it holds something of type {code}, which is not an array")
  msgpack.unpackb(content, raw=True, max_array_len=MAX_AXES)


def _distinct(pairs) -> dict:
  """A map without duplicate names; the library would silently take the last of them."""
  if len({name for name, _ in pairs}) < len(pairs):
    raise ValueError("two of its names are the same")
  return dict(pairs)


MSGPACK = WeightFormat(words=".msgpack", suffix=".msgpack", load=_load, save=_save)
