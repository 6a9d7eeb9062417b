"""Weights as safetensors, under the published names."""

import pathlib

import ml_dtypes
import numpy as np
import safetensors
import safetensors.numpy

from vit_jax.weights import published

DTYPES = {
  "F64": np.float64,
  "F32": np.float32,
  "F16": np.float16,
  "BF16": ml_dtypes.bfloat16,
}


def load(path: pathlib.Path) -> dict:
  """Reads a tree of NumPy arrays.

  Raises:
    ValueError: not safetensors, or types that are not floating-point.
  """
  try:
    return published.from_published(load_flat(path))
  except ValueError as error:
    raise ValueError(f"{path} cannot be read as safetensors weights: {error}.") from error


def load_flat(path: pathlib.Path) -> dict[str, np.ndarray]:
  """{name: array} as the file has it.

  Raises:
    ValueError: as `load`.
  """
  try:
    entries = safetensors.deserialize(path.read_bytes())
  except safetensors.SafetensorError as error:
    raise ValueError(str(error)) from error
  flat = {}
  for name, entry in entries:
    if entry["dtype"] not in DTYPES:
      raise ValueError(f"{name} holds {entry['dtype']}; weights are floating-point numbers")
    flat[name] = np.frombuffer(entry["data"], DTYPES[entry["dtype"]]).reshape(entry["shape"])
  return flat


def save(path: pathlib.Path, params: dict):
  """Writes a tree of arrays under the published names, stacked blocks taken apart."""
  save_flat(path, published.to_published(params))


def save_flat(path: pathlib.Path, flat: dict[str, np.ndarray]):
  """Writes {name: array}; the metadata says what torch's readers ask for."""
  temporary = path.with_name(path.name + ".tmp")
  arrays = {name: np.ascontiguousarray(array) for name, array in flat.items()}
  safetensors.numpy.save_file(arrays, temporary, metadata={"format": "pt"})
  temporary.replace(path)
