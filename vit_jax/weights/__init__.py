"""Parameters in files. The format follows the suffix; blocks are always stored apart."""

import pathlib

from vit_jax.models.stacking import unstack_blocks
from vit_jax.weights.fit import fit, table
from vit_jax.weights.source import Weights, format_of, module, of_checkpoint, read, told_by, write

__all__ = [
  "Weights",
  "fit",
  "format_of",
  "load",
  "module",
  "of_checkpoint",
  "read",
  "save",
  "table",
  "told_by",
  "write",
]


def load(path) -> dict:
  """Reads parameters as NumPy arrays, in the tree of a model with scan=False.

  Of a run that has a moving average of its parameters, that is read.

  Args:
    path: *.npz, *.msgpack or *.safetensors, a folder for Hugging Face, a run's workdir, or one of
      its checkpoints.

  Raises:
    ConfigError: nothing is there, or a folder of something else.
    ValueError: a file that is not what its name says.
    OSError: a file that cannot be read.
    CheckpointError: a damaged checkpoint, or none.
  """
  return read(pathlib.Path(path)).params


def save(path, params: dict):
  """Writes parameters; a file that is there already is replaced only by a complete one.

  Args:
    path: *.npz, *.msgpack, *.safetensors, or without suffix a folder for Hugging Face.
    params: tree of a model with scan=True or scan=False.

  Raises:
    ValueError: an unknown suffix, or a model that the format has no place for.
    OSError: a file that cannot be written.
  """
  path, params = pathlib.Path(path), unstack_blocks(params)
  if path.suffix:
    format_of(path).save(path, params)
  else:
    write(path, Weights(params, None))
