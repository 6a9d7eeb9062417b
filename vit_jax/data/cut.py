"""Where in an image a crop of it lies, so that values of its pixels can follow crop and flip."""

from typing import NamedTuple

import numpy as np

from vit_jax.data.crops import Box


class Cut(NamedTuple):
  """A square that was cut out of an image.

  The image is resized to the grid, the box is cut out of that, mirrored at the edges where it
  reaches beyond them, and the box is resized to the square.

  Attributes:
    pixels: the square, (S, S, 3) uint8.
    image: rows and columns of the image, upright.
    grid: rows and columns of the resized image.
    box: in pixels of the grid; it may reach beyond.
    flipped: whether the square is flipped left to right.
  """

  pixels: np.ndarray
  image: tuple[int, int]
  grid: tuple[int, int]
  box: Box
  flipped: bool = False


def follow(values: np.ndarray, cut: Cut) -> np.ndarray:
  """The values of the pixels of a cut: of the nearest pixel of the image, so none are blended.

  Args:
    values: (H, W, ...), one for each pixel of the image.
    cut: of this image.

  Returns:
    (S, S, ...)
  """
  count, (height, width), box = len(cut.pixels), cut.grid, cut.box
  rows = _nearest(box.top, box.height, count, height, cut.image[0])
  columns = _nearest(box.left, box.width, count, width, cut.image[1])
  return values[rows[:, None], columns[::-1] if cut.flipped else columns]


def _nearest(first: int, length: int, count: int, grid: int, image: int) -> np.ndarray:
  """The pixels along a side of the image below the centres of `count` pixels of the square."""
  centres = first + (np.arange(count) + 0.5) * length / count
  centres = np.where(centres < 0, 1 - centres, centres)  # mirrored at the centre of the last pixel
  centres = np.where(centres > grid, 2 * grid - 1 - centres, centres)
  return np.minimum((centres * image / grid).astype(int), image - 1)
