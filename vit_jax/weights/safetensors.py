"""Weights as safetensors, under the published names."""

import os
import pathlib

import numpy as np
import safetensors
import safetensors.numpy

from vit_jax.storage.files import write_whole
from vit_jax.weights import arrays, published

DTYPES = ("F64", "F32", "F16", "BF16")


def load(path: pathlib.Path) -> dict:
  """Reads a tree of NumPy arrays.

  Raises:
    ValueError: the file is not safetensors, or its arrays fail `arrays.checked`.
  """
  with arrays.reading(path, "safetensors"):
    return published.from_published(_flat(path))


def load_flat(path: pathlib.Path) -> dict[str, np.ndarray]:
  """Reads {name: array} under the file's own names.

  Raises:
    ValueError: as in `load`.
  """
  with arrays.reading(path, "safetensors"):
    return arrays.checked(_flat(path))


def save(path: pathlib.Path, params: dict):
  """Writes a tree of arrays under the published names; stacked blocks are unstacked."""
  save_flat(path, published.to_published(params))


def save_flat(path: pathlib.Path, flat: dict[str, np.ndarray]):
  """Writes {name: array}, with the metadata that PyTorch's readers need."""
  contiguous = {name: np.ascontiguousarray(array) for name, array in flat.items()}

  def fill(partial: str):
    with open(partial, "wb") as file:
      usual = os.fstat(file.fileno()).st_mode
    safetensors.numpy.save_file(contiguous, partial, metadata={"format": "pt"})
    os.chmod(partial, usual)  # the library makes files that only their owner can read

  write_whole(str(path), fill)


def _flat(path):
  """Reads the arrays of a file; checks its header before the arrays are read."""
  arrays.check_bytes(path)
  with safetensors.safe_open(path, framework="numpy") as file:
    names = list(file.keys())
    for name in names:
      if (kind := file.get_slice(name).get_dtype()) not in DTYPES:
        raise ValueError(f"{name} holds {kind}; weights are floating-point numbers")
    return {name: file.get_tensor(name) for name in names}
