"""Resizes pixels as the paper's code does, or as the code that other weights were made with.

`resampling` is a value of `config.data.resampling` everywhere in this module. "bilinear" is the
paper's code. The others use a filter of Pillow, which averages more pixels the more an image is
reduced. The prefix says whose rules give sizes and centres: "pillow_" those of Transformers'
processors, "torchvision_" those of torchvision, which timm uses.

The functions that take settings describe how an evaluation resizes images before it cuts out their
centre.
"""

import cv2
import numpy as np
from PIL import Image

from vit_jax.config import RESAMPLING, ConfigError, Data

# Few-shot evaluation cuts 224 pixels out of a square of 256.
SQUARE = 256 / 224


def in_words(data: Data, resize: int, *, squeeze: bool) -> str:
  """Says how an image becomes a square of `data.image_size` pixels.

  Args:
    data: the settings.
    resize, squeeze: as for `images.evaluate_image`.
  """
  side = data.image_size
  if resize and not squeeze:
    steps = [f"smaller side to {resize} px"]
  else:
    steps = [f"{resize or side} x {resize or side} px"]
  if resize:
    steps.append(f"centre of {side} px")
  if data.resampled() != Data().resampled():
    steps.append(data.resampling)
  return ", ".join(steps)


def square(side: int) -> int:
  """Side of the square to which images are resized to evaluate features."""
  return round(side * SQUARE)


def check(data: Data):
  """Checks that an evaluation resizes images to at least the size of its central crop.

  Raises:
    ConfigError: the resized image is smaller.
  """
  if 0 != data.evaluate_resize < data.image_size:
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
  """Resizes pixels (H, W, 3) uint8 to (height, width, 3)."""
  if pixels.shape[:2] == (height, width):
    return np.ascontiguousarray(pixels)
  if filter_of(resampling):
    return _filtered(pixels, height=height, width=width, resampling=resampling)
  return _as_published(pixels, height=height, width=width)


def central(
  pixels: np.ndarray, *, height: int, width: int, size: int, resampling: str
) -> np.ndarray:
  """The central square of `size` pixels of what `resized` would return with Pillow's filter."""
  top, left = (margin(length, size, resampling=resampling) for length in (height, width))
  down = pixels.shape[0] / height
  across = pixels.shape[1] / width
  box = (left * across, top * down, (left + size) * across, (top + size) * down)
  return _filtered(pixels, height=size, width=size, resampling=resampling, box=box)


def smaller_side_to(side: int, height: int, width: int, *, resampling: str) -> tuple[int, int]:
  """The height and width of an image whose smaller side becomes `side` pixels.

  The paper's code rounds the larger side to the nearest pixel; the others round it down.
  """
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
  return np.asarray(Image.fromarray(pixels).resize((width, height), kind, box=box))


def _as_published(pixels: np.ndarray, *, height: int, width: int) -> np.ndarray:
  """Bilinear with half-pixel centres and no antialiasing, as tf.image.resize, to the nearest level.

  For 8-bit pixels OpenCV uses low-precision weights, and the results are darker by 0.12 levels on
  average. For 16-bit pixels it computes in float32 and rounds without bias.
  """
  exact = cv2.resize(pixels.astype(np.uint16), (width, height), interpolation=cv2.INTER_LINEAR)
  return exact.astype(np.uint8)
