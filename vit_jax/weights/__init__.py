"""Parameters in files. The format follows the suffix; blocks are always stored apart."""

import pathlib

from vit_jax.weights import msgpack

__all__ = ["load", "save"]

FORMATS = {".msgpack": msgpack}


def load(path) -> dict:
  """Reads parameters as NumPy arrays, in the tree of a model with scan=False.

  Raises:
    ValueError: an unknown suffix, or a file that is not what its suffix says.
    OSError: a file that cannot be read.
  """
  return _format_of(path).load(pathlib.Path(path))


def save(path, params: dict):
  """Writes parameters; a file that is there already is replaced only by a complete one.

  Args:
    path: its suffix is one of .msgpack.
    params: tree of a model with scan=True or scan=False.

  Raises:
    ValueError: an unknown suffix.
    OSError: a file that cannot be written.
  """
  _format_of(path).save(pathlib.Path(path), params)


def _format_of(path):
  suffix = pathlib.Path(path).suffix
  if suffix not in FORMATS:
    raise ValueError(
      f"{path} ends in {suffix!r}, which is no format for weights; known: {', '.join(FORMATS)}."
    )
  return FORMATS[suffix]
