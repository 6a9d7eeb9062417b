"""Images cut into overlapping windows of one size, in which a segmentation probe sees them.

After the evaluation of DINOv3's eval/segmentation: an image is resized until it covers a window,
and windows follow one another at 341 of 512 pixels; the last one ends at the border.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from vit_jax.config import Size, in_pixels, sides
from vit_jax.data.crops import covering, resized
from vit_jax.data.datasets import NamedDataset
from vit_jax.data.images import as_channels
from vit_jax.data.sources import Source
from vit_jax.data.sources.base import Example, SourceView
from vit_jax.inference.predict import MAX_PIXELS
from vit_jax.weights.card import Card

STRIDE = 341 / 512  # of the side of a window


def places(shape: tuple[int, int], size: Size) -> list[tuple[int, int]]:
  """The first row and column of each window of `size` pixels in an image of this shape."""
  tops, lefts = (starts(length, side) for length, side in zip(shape, sides(size), strict=True))
  return [(top, left) for top in tops for left in lefts]


def starts(length: int, side: int) -> list[int]:
  """The first pixel of each window along an axis of `length` pixels, at least `side`."""
  stride = max(1, round(STRIDE * side))
  return [*range(0, length - side, stride), length - side]


def resized_shape(shape: tuple[int, int], card: Card) -> tuple[int, int]:
  """Rows and columns of an image that has been resized until it covers a window."""
  return covering(card.image_size, *shape, resampling=card.resampling)


def of_images(named: NamedDataset, masks: Sequence[np.ndarray], card: Card) -> NamedDataset:
  """The windows of images, whose masks have their shapes."""
  shapes = [resized_shape(mask.shape, card) for mask in masks]
  return named._replace(source=Windows(named.source, shapes, card))


def of_masks(masks: Sequence[np.ndarray], card: Card) -> Iterator[np.ndarray]:
  """The masks of these windows, (H, W) each."""
  rows, columns = sides(card.image_size)
  for mask in masks:
    large = nearest(mask, resized_shape(mask.shape, card))
    for top, left in places(large.shape, card.image_size):
      yield large[top : top + rows, left : left + columns]


def nearest(mask: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
  """A mask of another shape; each pixel takes the value at its centre."""
  rows, columns = (
    np.int64((np.arange(new) + 0.5) * old / new) for new, old in zip(shape, mask.shape, strict=True)
  )
  return mask[rows][:, columns]


class Windows(SourceView):
  """The windows of a source's images, one image after the other.

  Args:
    source: the images.
    shapes: rows and columns of each image after resizing.
    card: has the size of the windows, and how images are resized.
  """

  def __init__(self, source: Source, shapes: Sequence[tuple[int, int]], card: Card):
    super().__init__(source)
    size = card.image_size
    self.identity = f"{source.identity}, in windows of {in_pixels(size)} pixels"
    self._card = card
    self._shapes = shapes
    self._places = [(row, place) for row, x in enumerate(shapes) for place in places(x, size)]

  def __len__(self) -> int:
    return len(self._places)

  def __getitem__(self, index: int) -> Example:
    row, (top, left) = self._places[index]
    example = super().__getitem__(index)
    pixels = as_channels(example.image, self._card.channels, max_pixels=MAX_PIXELS)
    height, width = self._shapes[row]
    pixels = resized(pixels, height=height, width=width, resampling=self._card.resampling)
    rows, columns = sides(self._card.image_size)
    return example._replace(image=pixels[top : top + rows, left : left + columns])

  def name(self, index: int) -> str:
    """The name of the image, and where the window begins."""
    row, (top, left) = self._places[index]
    return f"{self._source.name(row)} from row {top}, column {left}"

  def _row(self, index: int) -> int:
    return self._places[index][0]
