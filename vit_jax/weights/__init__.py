"""Parameters in files. The suffix gives the format; blocks are always stored unstacked."""

from vit_jax.models.stacking import unstack_blocks
from vit_jax.storage.paths import local_path, path_of
from vit_jax.weights.card import inferred
from vit_jax.weights.fit import fit, table
from vit_jax.weights.format import WeightFormat, Weights
from vit_jax.weights.source import format_to_write, read, trained_on, write
from vit_jax.weights.workdir import of_run

__all__ = [
  "WeightFormat",
  "Weights",
  "fit",
  "format_to_write",
  "inferred",
  "load",
  "of_run",
  "read",
  "save",
  "table",
  "trained_on",
  "write",
]


def load(path) -> dict:
  """Reads parameters as NumPy arrays in float32, in the tree of a model with scan=False.

  If a run has a moving average of its parameters, reads the average.

  Args:
    path: *.npz, *.msgpack or *.safetensors, a folder of Hugging Face or timm, a run's workdir, or
      one of its checkpoints.

  Raises:
    ConfigError: the path does not exist, or is of no known format.
    ValueError: the content does not match the format that the name says.
    OSError: the file cannot be read.
    CheckpointError: the checkpoint is damaged, or there is none.
  """
  return read(path_of(path)).params


def save(path, params: dict):
  """Writes parameters; an existing file is replaced only when the new one is complete.

  Args:
    path: *.npz, *.msgpack or *.safetensors; a path without suffix is a folder for Hugging Face.
    params: tree of a model with scan=True or scan=False.

  Raises:
    ConfigError: no format has this suffix.
    ValueError: the format cannot express the model.
    OSError: the file cannot be written.
  """
  path = local_path(path)
  format_to_write(path).save(path, unstack_blocks(params), None)
