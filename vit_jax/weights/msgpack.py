"""Weights as msgpack, in Flax's encoding: nested maps of arrays."""

import pathlib

import flax.serialization
import jax
import numpy as np

from vit_jax.models.stacking import unstack_blocks
from vit_jax.tree import flatten
from vit_jax.weights import published


def load(path: pathlib.Path) -> dict:
  """Reads a tree of NumPy arrays.

  Raises:
    ValueError: the file holds something else, or was cut short.
  """
  data = path.read_bytes()
  try:
    tree = flax.serialization.msgpack_restore(data)
  except Exception as error:  # the decoder raises whatever strange bytes lead it to
    raise ValueError(f"{path} is not msgpack as Flax writes it: {error}") from error
  if not _is_params(tree):
    raise ValueError(f"{path} is msgpack, but does not hold a tree of parameters.")
  try:
    return published.from_published(flatten(tree))
  except ValueError as error:
    raise ValueError(f"{path} does not hold a tree of parameters: {error}.") from error


def save(path: pathlib.Path, params: dict):
  """Writes a tree of arrays, stacked blocks taken apart."""
  tree = jax.tree.map(np.asarray, unstack_blocks(params))
  temporary = path.with_name(path.name + ".tmp")
  temporary.write_bytes(flax.serialization.msgpack_serialize(tree))
  temporary.replace(path)


def _is_params(tree) -> bool:
  if isinstance(tree, dict):
    return bool(tree) and all(isinstance(k, str) and _is_params(v) for k, v in tree.items())
  return isinstance(tree, np.ndarray)
