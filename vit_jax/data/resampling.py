"""Resizes pixels as the paper's code does, or as the code that other weights were made with.

Everywhere here `resampling` is a name of `config.data.resampling`. "bilinear" is the paper's code.
Others have a filter of Pillow, which takes the mean of more pixels the more an image is reduced,
and whose rules give sizes and centres: "pillow_" those of Transformers' processors, "torchvision_"
those of torchvision, which timm uses.

The functions with settings tell how an evaluation resizes images before it cuts out their centre.
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
    resize, squeeze: as of `images.evaluate_image`.
  """
  side = data.image_size
  square = f"{resize or side} x {resize or side} px"
  first = f"smaller side to {resize} px" if resize and not squeeze else square
  centre = f", centre of {side} px" if resize else ""
  how = f", {data.resampling}" if data.resampled() != Data().resampled() else ""
  return f"{first}{centre}{how}"


def square(side: int) -> int:
  """Side of the square to which images are resized for evaluations of features."""
  return round(side * SQUARE)


def check(data: Data):
  """Checks that evaluation resizes images to at least the size that it cuts out.

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
  """Pillow's filter, such as "bicubic"; "" for the interpolation of the paper's code."""
  return resampling.partition("_")[2]


def resized(pixels: np.ndarray, *, height: int, width: int, resampling: str) -> np.ndarray:
  """Pixels (H, W, 3) uint8 as (height, width, 3)."""
  if pixels.shape[:2] == (height, width):
    return np.ascontiguousarray(pixels)
  if filter_of(resampling):
    return _filtered(pixels, height=height, width=width, resampling=resampling)
  return _as_published(pixels, height=height, width=width)


def central(
  pixels: np.ndarray, *, height: int, width: int, size: int, resampling: str
) -> np.ndarray:
  """The central square of `size` of what `resized` would give with a filter of Pillow."""
  top, left = (margin(length, size, resampling=resampling) for length in (height, width))
  down, across = pixels.shape[0] / height, pixels.shape[1] / width
  box = (left * across, top * down, (left + size) * across, (top + size) * down)
  return _filtered(pixels, height=size, width=size, resampling=resampling, box=box)


def smaller_side_to(side: int, height: int, width: int, *, resampling: str) -> tuple[int, int]:
  """The height and width of an image whose smaller side becomes `side` pixels.

  The paper's code rounds the larger side to the nearest pixel; the others round it down.
  """
  smaller, larger = sorted((height, width))
  long = int(side * larger / smaller) if filter_of(resampling) else round(larger * (side / smaller))
  return (side, long) if height <= width else (long, side)


def margin(length: int, size: int, *, resampling: str) -> int:
  """Pixels before the central `size` of `length`; of a half, torchvision takes the even number."""
  if resampling.startswith(_TORCHVISION):
    return round((length - size) / 2)
  return (length - size) // 2


def _filtered(pixels, *, height, width, resampling, box=None) -> np.ndarray:
  kind = Image.Resampling[filter_of(resampling).upper()]
  return np.asarray(Image.fromarray(pixels).resize((width, height), kind, box=box))


def _as_published(pixels: np.ndarray, *, height: int, width: int) -> np.ndarray:
  """Bilinear with half-pixel centres and no antialiasing, as tf.image.resize, to the nearest level.

  With 8 bits OpenCV has weights of few bits, and its results are darker by 0.12 levels on average;
  with 16 bits it computes in float32 and rounds without bias.
  """
  exact = cv2.resize(pixels.astype(np.uint16), (width, height), interpolation=cv2.INTER_LINEAR)
  return exact.astype(np.uint8)
