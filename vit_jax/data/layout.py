"""How examples become rows of a batch."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from vit_jax.config import RunError
from vit_jax.data.crops import Cut, follow
from vit_jax.data.fields import Field
from vit_jax.data.images import BadImage
from vit_jax.data.sources import Example, Source


class FieldError(RunError):
  """An array or a label of an example is not what its source declares; the message names both."""


class Crop(NamedTuple):
  """How an image of a batch is made.

  Attributes:
    cut: (image, rng=generator) -> Cut; without random draws, (image) -> Cut.
    side: of its squares, pixels.
    count: squares of an example, each with draws of its own; 0: one, without an axis for them.
  """

  cut: Callable[..., Cut]
  side: int
  count: int = 0


@dataclasses.dataclass(frozen=True)
class Layout:
  """What a batch holds.

  Attributes:
    crops: its images, by name.
    given: the fields that it takes from the source.
    classes: number of classes; 0: no labels.
    multi_label: whether an example has any number of labels.
    decode: image -> pixels, once for all crops; None: a crop decodes what it needs of the image.
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
    """What a batch of a source's examples holds, with these images and fields."""
    return cls(crops, given, len(source.class_names), source.multi_label, decode)

  @functools.cached_property
  def fields(self) -> dict[str, Field]:
    """All arrays of a batch but its mask; labels are (B,) int32, or (B, classes) indicators."""
    fields = {}
    for name, crop in self.crops.items():
      several = (crop.count,) if crop.count else ()
      fields[name] = Field((*several, crop.side, crop.side, 3), "uint8")
    for name, field in self.given.items():
      sides = 2 * (self.crops["image"].side,) if field.dense else ()
      fields[name] = dataclasses.replace(field, shape=(*sides, *field.shape))
    if self.classes:
      several = Field((self.classes,), "uint8")
      fields["labels"] = several if self.multi_label else Field((), "int32")
    return fields

  @functools.cached_property
  def padding(self) -> dict[str, np.ndarray]:
    """A row that does not count."""
    return {name: field.full() for name, field in self.fields.items()}

  def row(self, example: Example, **draws: np.random.Generator) -> dict[str, np.ndarray | int]:
    """The row of an example; `draws` is rng=generator where crops are random.

    Raises:
      BadImage: the image cannot be decoded, or a dense field is of another size than it.
      FieldError: an array or a label is not what the source declares.
    """
    row, cuts, image = {}, {}, example.image
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
  """The values of the pixels of a cut.

  Raises:
    BadImage: they are of an image of another size.
    FieldError: as `_checked`.
  """
  sides = np.shape(example.fields.get(name))[:2]
  if len(sides) == 2 and sides != cut.image:
    have, needs = (f"{height} rows and {width} columns" for height, width in (sides, cut.image))
    turned = "; values are for the image as its Exif orientation turns it"
    raise BadImage(
      f"its {name} has {have}, and the image {needs}{turned * (sides == cut.image[::-1])}"
    )
  return follow(_checked(example, name, (*cut.image, *field.shape), field.dtype), cut)


def _checked(example: Example, name: str, shape: tuple[int, ...], dtype: str) -> np.ndarray:
  """A field of an example.

  Raises:
    FieldError: it is missing, or has another shape or type.
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
