"""What a batch holds beside its mask: arrays, each declared by the source or by the objective."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from vit_jax.config import ConfigError
from vit_jax.process.text import listed

OWN = ("image", "labels", "mask")  # which every source has, or every batch
TYPES = ("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "float16", "float32")


@dataclasses.dataclass(frozen=True)
class Field:
  """An array of a batch.

  Attributes:
    shape: of one example; if it is dense, without the rows and columns.
    dtype: one of `TYPES`; JAX has no others.
    padding: the value of all elements of rows that do not count, since an image is broken or to
      fill a batch up.
    dense: whether it has a value for each pixel of the image. The values then follow the crop and
      the flip of "image", each from the nearest pixel.
  """

  shape: tuple[int, ...] = ()
  dtype: str = "float32"
  padding: float = 0
  dense: bool = False

  def full(self, *rows: int) -> np.ndarray:
    """Rows of padding."""
    return np.full((*rows, *self.shape), self.padding, self.dtype)


def holds(dtype: str, value: float) -> bool:
  """Whether a type has a number for this value; types of floats have one, rounded, for all."""
  return dtype.startswith("float") or np.array(value).astype(dtype) == value


def check(
  kind: str,
  needed: Mapping[str, Field],
  given: Mapping[str, Field],
  views: Mapping[str, object],
  of: str,
):
  """Checks the fields that an objective needs from a source, once, at the start of a run.

  Args:
    kind: config.objective.kind.
    needed: by the objective.
    given: by the source.
    views: the images of a batch.
    of: the source, in words.

  Raises:
    ConfigError: a declaration is wrong, the two differ, or the source lacks a field.
  """
  needs = f"config.objective.kind={kind} needs"
  for name, field in needed.items():
    if name in OWN or name in views or not name.isidentifier():
      raise ConfigError(
        f"{needs} a field {name!r}; its name must be an identifier, and none of "
        f"{listed(sorted({*OWN, *views}))}."
      )
    if field.dtype not in TYPES or not holds(field.dtype, field.padding):
      raise ConfigError(
        f"{needs} the field {name!r}, declared with the type {field.dtype!r} and the padding "
        f"{field.padding}; the type must be one of {', '.join(TYPES)}, and hold the padding."
      )
    if field.dense and "image" not in views:
      raise ConfigError(
        f'{needs} the field {name!r}, which follows the crop of "image", and has the images '
        f"{listed(sorted(views))}."
      )
    if name not in given:
      has = f"it has {listed(sorted(given))}" if given else "it has none beside images and labels"
      raise ConfigError(f"{needs} the field {name!r}, which {of} lacks; {has}.")
    if given[name] != field:
      raise ConfigError(f"{needs} the field {name!r} as {field}, and {of} has it as {given[name]}.")
