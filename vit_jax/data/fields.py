"""Declarations of the arrays of a batch other than its mask, by the source or the objective."""

import dataclasses
import math
from collections.abc import Mapping

import numpy as np

from vit_jax.config import ConfigError, View
from vit_jax.process.text import listed

OWN = ("image", "labels", "mask")  # reserved: every source or every batch has these
TYPES = ("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "float16", "float32")


@dataclasses.dataclass(frozen=True)
class Field:
  """An array of a batch.

  Attributes:
    shape: shape for one example; if the field is dense, without the rows and columns.
    dtype: one of `TYPES`; JAX has no others.
    padding: the value of all elements of rows that do not count, because an image is broken or the
      row only fills up a batch.
    dense: whether there is a value for each pixel of the image, upright by its Exif orientation.
      The values are then cropped and flipped as "image" is, each from the nearest pixel.
  """

  shape: tuple[int, ...] = ()
  dtype: str = "float32"
  padding: float = 0
  dense: bool = False

  def full(self) -> np.ndarray:
    """The padding for an example that does not count."""
    return np.full(self.shape, self.padding, self.dtype)


def holds(dtype: str, value: float) -> bool:
  """Whether a type can hold this number, rounded if it is a float type; False for NaN."""
  if dtype == "bool":
    return value in (0, 1)
  if dtype.startswith("float"):
    return math.isinf(value) or abs(value) <= float(np.finfo(dtype).max)
  whole = math.isfinite(value) and value == math.floor(value)
  return whole and np.iinfo(dtype).min <= value <= np.iinfo(dtype).max


def check(asks: str, needed: Mapping[str, Field], views: Mapping[str, View]):
  """Checks the declarations of an objective or an evaluation.

  Args:
    asks: the setting that declares them, such as "config.objective.kind=x".
    needed: the fields.
    views: the images of a batch.

  Raises:
    ConfigError: names the field or the view.
  """
  if not views:
    raise ConfigError(f"{asks} has no images; give it at least one.")
  for name, view in views.items():
    if name in OWN[1:] or not name.isidentifier() or view.count < 0:
      raise ConfigError(
        f"{asks} has images called {name!r}, {view.count} of an example; rename them to an "
        f"identifier other than {listed(OWN[1:])}, and give a count of at least 0."
      )
  for name, field in needed.items():
    if name in OWN or name in views or not name.isidentifier():
      raise ConfigError(
        f"{asks} needs a field {name!r}; rename it to an identifier other than "
        f"{listed(sorted({*OWN, *views}))}."
      )
    if field.dtype not in TYPES or not holds(field.dtype, field.padding):
      raise ConfigError(
        f"{asks} needs the field {name!r} with the type {field.dtype!r} and the padding "
        f"{field.padding}; the type must be one of {', '.join(TYPES)}, and hold the padding."
      )
    if field.dense and ("image" not in views or views["image"].count):
      raise ConfigError(
        f'{asks} needs the field {name!r}, which follows the crop of "image", so a batch must '
        f"hold one of that name for each example; it has {listed(sorted(views))}."
      )


def check_given(asks: str, needed: Mapping[str, Field], given: Mapping[str, Field], of: str):
  """Checks that a source has the needed fields as they are declared.

  Args:
    asks, needed: as for `check`.
    given: the fields of the source.
    of: the source, in words.

  Raises:
    ConfigError: the source lacks a field, or declares it differently.
  """
  for name, field in needed.items():
    if name not in given:
      has = "it has none beside images and labels"
      if given:
        has = f"it has {listed(sorted(given))}"
      raise ConfigError(
        f"{asks} needs the field {name!r}, and {of} lacks it: {has}; take other data."
      )
    if given[name] != field:
      raise ConfigError(
        f"{asks} needs the field {name!r} as {field}, and {of} has {given[name]}; declare both "
        "alike."
      )
