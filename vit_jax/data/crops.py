"""Which part of a training image is seen, and how pixels are resized.

Two rules give random crops. Resizing follows the paper's code, or the code that other weights were
made with.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import cv2
import numpy as np
from PIL import Image

from vit_jax.config import (
  RESAMPLING,
  Augmentation,
  ConfigError,
  Data,
  Size,
  as_size,
  covers,
  in_pixels,
  sides,
)

_TRIES = 100
_TRIES_RESIZED = 10


class Box(NamedTuple):
  """A rectangle in pixels."""

  top: int
  left: int
  height: int
  width: int


Draw = Callable[..., Box]


def inception(
  rng: np.random.Generator,
  *,
  height: int,
  width: int,
  area: tuple[float, float],
  aspect: tuple[float, float],
) -> Box:
  """Draws an Inception crop: an aspect, then a height that fits it and `area`, then a place.

  The aspect is uniform in its range, and the height is uniform over the heights that fit. Rounding
  the width to pixels can move the area of the crop out of its bounds. Then the height changes by
  one pixel, even if a crop as wide as the image leaves its aspect range by that; if the area is
  still out of bounds, another crop is drawn. If no crop fits in 100 tries, returns the whole image.

  Source: the crop of Szegedy et al., "Going deeper with convolutions", 2015. The published models
  were trained with tf.image.sample_distorted_bounding_box. It differs in two ways. Its crops never
  touch the lower edge of the image unless they have the full height, nor the right edge unless they
  have the full width; here all places have equal probability. It rounds the smallest and largest
  heights for the area to the nearest pixel; here they are rounded inwards.
  """
  least_area, most_area = (fraction * height * width for fraction in area)
  for _ in range(_TRIES):
    ratio = _between(rng, *aspect)
    least = math.ceil(math.sqrt(least_area / ratio))
    most = min(math.sqrt(most_area / ratio), height, (width + 0.5) / ratio)
    if least > int(most):
      continue
    crop_height = max(1, least + int((int(most) - least + 1) * rng.random()))
    crop_width = _width(crop_height, ratio, width)
    if not least_area <= crop_height * crop_width <= most_area:
      if crop_height * crop_width < least_area:
        crop_height += 1
      else:
        crop_height -= 1
      crop_width = _width(crop_height, ratio, width)
      if crop_height > height or not least_area <= crop_height * crop_width <= most_area:
        continue
    top = int((height - crop_height + 1) * rng.random())
    left = int((width - crop_width + 1) * rng.random())
    return Box(top, left, crop_height, crop_width)
  return Box(0, 0, height, width)


def _width(height: int, ratio: float, width: int) -> int:
  """Width of a crop with this height and aspect, in an image of this width."""
  return min(width, max(1, round(height * ratio)))


def random_resized(
  rng: np.random.Generator,
  *,
  height: int,
  width: int,
  area: tuple[float, float],
  aspect: tuple[float, float],
) -> Box:
  """Draws an area, uniform, then an aspect, uniform in its logarithm, then a place.

  If none of 10 crops fits into the image, takes the largest central one within `aspect`. Small
  crops are rarer than with `inception`.

  Source: RandomResizedCrop of torchvision; timm's has the same rule.
  """
  for _ in range(_TRIES_RESIZED):
    pixels = _between(rng, *area) * height * width
    ratio = math.exp(_between(rng, *map(math.log, aspect)))
    crop_width, crop_height = (round(math.sqrt(pixels * r)) for r in (ratio, 1 / ratio))
    if 0 < crop_width <= width and 0 < crop_height <= height:
      top = int((height - crop_height + 1) * rng.random())
      left = int((width - crop_width + 1) * rng.random())
      return Box(top, left, crop_height, crop_width)
  crop_width = min(width, max(1, round(height * aspect[1])))
  crop_height = min(height, max(1, round(width / aspect[0])))
  return Box((height - crop_height) // 2, (width - crop_width) // 2, crop_height, crop_width)


def _between(rng: np.random.Generator, low: float, high: float) -> float:
  return low + (high - low) * rng.random()


RULES: dict[str, Draw] = {"inception": inception, "random_resized": random_resized}


class Cut(NamedTuple):
  """A rectangle of one size, usually a square, that was cut out of an image.

  The image is resized to the grid; the box is cut out of the grid, which is mirrored at its edges
  where the box reaches beyond them; then the box is resized to the rectangle.

  Attributes:
    pixels: the rectangle, (H, W, C) uint8.
    image: rows and columns of the upright image.
    grid: rows and columns of the resized image.
    box: the box, in pixels of the grid; it may reach beyond the grid.
    flipped: whether the rectangle is flipped left to right.
  """

  pixels: np.ndarray
  image: tuple[int, int]
  grid: tuple[int, int]
  box: Box
  flipped: bool = False


def follow(values: np.ndarray, cut: Cut) -> np.ndarray:
  """Cuts per-pixel values as a crop was cut; takes the nearest value, so none are blended.

  Args:
    values: one for each pixel of the image, in its first two axes.
    cut: a cut of this image.

  Returns:
    (H, W, ...), one for each pixel of the cut.
  """
  down, right = cut.pixels.shape[:2]
  height, width = cut.grid
  box = cut.box
  rows = _nearest(box.top, box.height, down, height, cut.image[0])
  columns = _nearest(box.left, box.width, right, width, cut.image[1])
  if cut.flipped:
    columns = columns[::-1]
  return values[rows[:, None], columns]


def _nearest(first: int, length: int, count: int, grid: int, image: int) -> np.ndarray:
  """Indices along one side of the image: the pixels nearest to `count` centres in the cut."""
  centres = first + (np.arange(count) + 0.5) * length / count
  centres = np.where(centres < 0, 1 - centres, centres)  # mirrored at the centre of the last pixel
  centres = np.where(centres > grid, 2 * grid - 1 - centres, centres)
  return np.minimum((centres * image / grid).astype(int), image - 1)


def augmented(
  image: bytes | np.ndarray,
  *,
  rng: np.random.Generator,
  crop: Callable[..., Cut],
  steps: Sequence[Augmentation],
) -> Cut:
  """A crop of the image, changed by all steps in their order.

  The crop draws first, so it is the same with and without steps.

  Args:
    image: an encoded file, or pixels.
    rng: generator for the image's position in the run.
    crop: (image, rng=generator) -> Cut.
    steps: the steps, in the order in which they change the crop.
  """
  cut = crop(image, rng=rng)
  pixels = cut.pixels
  size = as_size(pixels.shape[:2])
  for step in steps:
    for operation in step.draw(rng, size):
      pixels = operation(pixels)
  return cut._replace(pixels=pixels)


def resampling_in_words(data: Data, resize: Size, *, squeeze: bool) -> str:
  """Says how an image gets the size `data.image_size`.

  Args:
    data: the settings.
    resize, squeeze: as for `images.evaluate_image`.
  """
  size = data.image_size
  if resize and not squeeze and isinstance(resize, tuple):
    steps = [f"to cover {in_pixels(resize)} px"]
  elif resize and not squeeze:
    steps = [f"smaller side to {resize} px"]
  else:
    steps = [f"{in_pixels(sides(resize or size))} px"]
  if resize:
    steps.append(f"centre of {in_pixels(size)} px")
  if data.resampled() != Data().resampled():
    steps.append(data.resampling)
  return ", ".join(steps)


def check_resampling(data: Data):
  """Checks that an evaluation resizes images to at least the size of its central crop.

  Raises:
    ConfigError: the resized image is smaller.
  """
  if data.evaluate_resize and not covers(data.evaluate_resize, data.image_size):
    raise ConfigError(
      f"config.data.evaluate_resize={data.evaluate_resize} is smaller than "
      f"config.data.image_size={data.image_size}, which is cut out of it; make it 0 or at least "
      f"{data.image_size}."
    )


PUBLISHED = RESAMPLING[0]
_TORCHVISION = "torchvision_"


def filter_of(resampling: str) -> str:
  """The name of Pillow's filter, such as "bicubic"; "" for the paper's interpolation."""
  return resampling.partition("_")[2]


def resized(pixels: np.ndarray, *, height: int, width: int, resampling: str) -> np.ndarray:
  """Resizes pixels (H, W, C) uint8 to (height, width, C), each channel alone."""
  if pixels.shape[:2] == (height, width):
    return np.ascontiguousarray(pixels)
  if filter_of(resampling):
    return _filtered(pixels, height=height, width=width, resampling=resampling)
  return _as_published(pixels, height=height, width=width)


def central(
  pixels: np.ndarray, *, height: int, width: int, size: Size, resampling: str
) -> np.ndarray:
  """The centre, of `size` pixels, of what `resized` would return with Pillow's filter."""
  rows, columns = sides(size)
  top = margin(height, rows, resampling=resampling)
  left = margin(width, columns, resampling=resampling)
  down = pixels.shape[0] / height
  across = pixels.shape[1] / width
  box = (left * across, top * down, (left + columns) * across, (top + rows) * down)
  return _filtered(pixels, height=rows, width=columns, resampling=resampling, box=box)


def covering(size: Size, height: int, width: int, *, resampling: str) -> tuple[int, int]:
  """The height and width of an image that is resized, in proportion, until it covers `size`.

  For a square, the smaller side gets its side. The paper's code rounds the larger side to the
  nearest pixel; the others round it down. For other rectangles, both sides are rounded to the
  nearest pixel, as in timm (`ResizeKeepRatio`).
  """
  if isinstance(size, tuple):
    ratio = min(height / size[0], width / size[1])
    return round(height / ratio), round(width / ratio)
  side = size
  smaller, larger = sorted((height, width))
  if filter_of(resampling):
    long = int(side * larger / smaller)
  else:
    long = round(larger * (side / smaller))
  return (side, long) if height <= width else (long, side)


def margin(length: int, size: int, *, resampling: str) -> int:
  """Pixels before the central `size` of `length`; torchvision rounds halves to even."""
  if resampling.startswith(_TORCHVISION):
    return round((length - size) / 2)
  return (length - size) // 2


def _filtered(pixels, *, height, width, resampling, box=None) -> np.ndarray:
  kind = Image.Resampling[filter_of(resampling).upper()]

  def one(pixels):
    return np.asarray(Image.fromarray(pixels).resize((width, height), kind, box=box))

  return _by_channels(one, pixels)


def _by_channels(function: Callable, pixels: np.ndarray) -> np.ndarray:
  """`function` of RGB pixels; of others, of each channel (H, W) alone.

  Pillow would weight colours by the fourth channel, and has no modes of more.
  """
  if pixels.shape[2] == 3:
    return function(pixels)
  return np.stack([function(channel) for channel in np.moveaxis(pixels, 2, 0)], axis=-1)


def _as_published(pixels: np.ndarray, *, height: int, width: int) -> np.ndarray:
  """Bilinear with half-pixel centres and no antialiasing, as tf.image.resize, to the nearest level.

  For 8-bit pixels OpenCV uses low-precision weights, and the results are darker by 0.12 levels on
  average. For 16-bit pixels it computes in float32 and rounds without bias.
  """

  def one(pixels):
    return cv2.resize(pixels, (width, height), interpolation=cv2.INTER_LINEAR)

  return _by_channels(one, pixels.astype(np.uint16)).astype(np.uint8)
