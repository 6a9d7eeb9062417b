"""Turns examples into rows of a batch."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from vit_jax.config import RunError, Size, sides
from vit_jax.data.crops import Cut, follow
from vit_jax.data.images import BadImage
from vit_jax.data.sources import Example, Source
from vit_jax.data.sources.base import Field


class FieldError(RunError):
  """An array or a label of an example differs from its source's declaration."""


class Crop(NamedTuple):
  """How one image of a batch is made.

  Attributes:
    cut: (image, rng=generator) -> Cut; without random draws, (image) -> Cut.
    size: of the crops in pixels.
    count: crops of an example, each with its own draws; 0: one crop, without an axis for them.
    channels: of the crops.
  """

  cut: Callable[..., Cut]
  size: Size
  count: int = 0
  channels: int = 3


@dataclasses.dataclass(frozen=True)
class Layout:
  """The arrays of a batch.

  Attributes:
    crops: the images, by name.
    given: the fields that are taken from the source.
    classes: number of classes; 0: no labels.
    multi_label: whether an example has any number of labels.
    decode: image -> pixels, once for all crops; None: each crop decodes what it needs of the image.
  """

  crops: Mapping[str, Crop]
  given: Mapping[str, Field]
  classes: int = 0
  multi_label: bool = False
  decode: Callable[[bytes | np.ndarray], np.ndarray] | None = None

  @classmethod
  def of(
    cls, source: Source, crops: Mapping[str, Crop], given: Mapping[str, Field], decode=None
  ) -> "Layout":
    """The layout of a batch of a source's examples, with these images and fields."""
    return cls(crops, given, len(source.class_names), source.multi_label, decode)

  @functools.cached_property
  def fields(self) -> dict[str, Field]:
    """All arrays of a batch except the mask; labels are (B,) int32, or (B, classes) indicators."""
    fields = {}
    for name, crop in self.crops.items():
      shape = (*sides(crop.size), crop.channels)
      if crop.count:
        shape = (crop.count, *shape)
      fields[name] = Field(shape, "uint8")
    for name, field in self.given.items():
      if field.dense:
        size = sides(self.crops["image"].size)
        field = dataclasses.replace(field, shape=(*size, *field.shape))
      fields[name] = field
    if self.classes and self.multi_label:
      fields["labels"] = Field((self.classes,), "uint8")
    elif self.classes:
      fields["labels"] = Field((), "int32")
    return fields

  @functools.cached_property
  def padding(self) -> dict[str, np.ndarray]:
    """The row of an example that does not count."""
    return {name: field.full() for name, field in self.fields.items()}

  def row(self, example: Example, **draws: np.random.Generator) -> dict[str, np.ndarray | int]:
    """The row of an example; `draws` is rng=generator where crops are random.

    Raises:
      BadImage: the image cannot be decoded, or a dense field has another size than the image.
      FieldError: an array or a label differs from the source's declaration.
    """
    row = {}
    cuts = {}
    image = example.image
    if self.decode:
      image = self.decode(image)
    for name, crop in self.crops.items():
      if crop.count:
        several = [crop.cut(image, **draws) for _ in range(crop.count)]
        row[name] = np.stack([cut.pixels for cut in several])
      else:
        cuts[name] = crop.cut(image, **draws)
        row[name] = cuts[name].pixels
    for name, field in self.given.items():
      if field.dense:
        row[name] = _dense(example, name, field, cuts["image"])
      else:
        row[name] = _checked(example, name, field.shape, field.dtype)
    if self.classes:
      row["labels"] = self._labels(example)
    return row

  def _labels(self, example: Example) -> int | np.ndarray:
    """The number of the class, or indicators of the classes."""
    for label in example.labels:
      if not 0 <= label < self.classes:
        raise FieldError(
          f"{example.name} has label {label}, but the data has {self.classes} classes, so labels "
          f"must be in 0..{self.classes - 1}; correct the data."
        )
    if not self.multi_label:
      return example.labels[0]
    indicators = np.zeros(self.classes, np.uint8)
    indicators[list(example.labels)] = 1
    return indicators


def _dense(example: Example, name: str, field: Field, cut: Cut) -> np.ndarray:
  """A dense field of an example, cut as its image was.

  Raises:
    BadImage: the field has another size than the image.
    FieldError: as `_checked`.
  """
  sides = np.shape(example.fields.get(name))[:2]
  if len(sides) == 2 and sides != cut.image:
    has, needs = (f"{height} rows and {width} columns" for height, width in (sides, cut.image))
    message = f"its {name} has {has}, and the image {needs}"
    if sides == cut.image[::-1]:
      message += "; values are for the image as its Exif orientation turns it"
    raise BadImage(message)
  return follow(_checked(example, name, (*cut.image, *field.shape), field.dtype), cut)


def _checked(example: Example, name: str, shape: tuple[int, ...], dtype: str) -> np.ndarray:
  """A field of an example.

  Raises:
    FieldError: the field is missing, or has another shape or type.
  """
  if example.fields.get(name) is None:
    raise FieldError(f"{example.name} lacks the field {name!r} that its source declares.")
  value = example.fields[name]
  if np.shape(value) != shape or getattr(value, "dtype", None) != dtype:
    kind = getattr(value, "dtype", type(value).__name__)
    raise FieldError(
      f"the field {name!r} of {example.name} is {kind} {np.shape(value)}, and must be {dtype} "
      f"{shape}, as its source declares."
    )
  return value
