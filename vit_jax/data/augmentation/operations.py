"""Operations on the pixels of an image; where Pillow has one, its result is Pillow's to the pixel.

Everywhere `pixels` is (H, W, 3) uint8 RGB; so is the result, and the argument is left as it is.

Operations that map each level by itself use a table of 256 levels, and `sharpness` smooths with
OpenCV; both are faster than Pillow. Pillow does the rest. Pixels that enter an image from outside
are middle grey, which the model sees as zero.
"""

import cv2
import numpy as np
from PIL import Image, ImageFilter

NEAREST = Image.Resampling.NEAREST
BICUBIC = Image.Resampling.BICUBIC

_GREY = 128
_LEVELS = np.arange(256)
_RAMP = Image.fromarray(_LEVELS[None].astype(np.uint8))
_SMOOTH = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]], np.float32) / 13  # ImageFilter.SMOOTH


def invert(pixels: np.ndarray) -> np.ndarray:
  """Each level v becomes 255 - v."""
  return cv2.bitwise_not(pixels)


def solarize(pixels: np.ndarray, threshold: int) -> np.ndarray:
  """Inverts levels from `threshold` on; a threshold over 255 changes nothing."""
  return _mapped(pixels, np.where(threshold > _LEVELS, _LEVELS, 255 - _LEVELS))


def solarize_add(pixels: np.ndarray, addition: int) -> np.ndarray:
  """Adds to levels below 128, at most up to 255."""
  return _mapped(pixels, np.where(_LEVELS < 128, np.minimum(_LEVELS + addition, 255), _LEVELS))


def posterize(pixels: np.ndarray, bits: int) -> np.ndarray:
  """Keeps the highest `bits` of each level: 8 keeps all, 0 makes the image black."""
  return _mapped(pixels, _LEVELS >> (8 - bits) << (8 - bits))


def equalize(pixels: np.ndarray) -> np.ndarray:
  """Maps the levels of each channel so that all are about equally frequent."""
  return _mapped(pixels, *map(_equal_levels, cv2.split(pixels)))


def auto_contrast(pixels: np.ndarray) -> np.ndarray:
  """Stretches the levels of each channel to 0..255."""
  return _mapped(pixels, *map(_stretched_levels, cv2.split(pixels)))


def color(pixels: np.ndarray, factor: float) -> np.ndarray:
  """Blends with the grey image: 0 is grey, 1 the image itself, more is more colourful."""
  image = Image.fromarray(pixels)
  return np.asarray(Image.blend(image.convert("L").convert("RGB"), image, factor))


def contrast(pixels: np.ndarray, factor: float) -> np.ndarray:
  """Blends with the mean level of the grey image: 0 is flat, 1 the image itself."""
  grey = np.asarray(Image.fromarray(pixels).convert("L"))
  return _mapped(pixels, _blended_levels(int(grey.sum() / grey.size + 0.5), factor))


def brightness(pixels: np.ndarray, factor: float) -> np.ndarray:
  """Blends with black: 0 is black, 1 the image itself, more is brighter."""
  return _mapped(pixels, _blended_levels(0, factor))


def sharpness(pixels: np.ndarray, factor: float) -> np.ndarray:
  """Blends with a smoothed image, whose edge stays: 0 is smooth, 1 the image itself."""
  smooth = cv2.filter2D(pixels, -1, _SMOOTH)
  smooth[[0, -1]] = pixels[[0, -1]]
  smooth[:, [0, -1]] = pixels[:, [0, -1]]
  return np.asarray(Image.blend(Image.fromarray(smooth), Image.fromarray(pixels), factor))


def rotate(pixels: np.ndarray, degrees: float, resample: int = NEAREST) -> np.ndarray:
  """Rotates about the centre, counterclockwise."""
  image = Image.fromarray(pixels)
  return np.asarray(image.rotate(degrees, resample, fillcolor=(_GREY,) * 3))


def shear_x(pixels: np.ndarray, shift: float, resample: int = NEAREST) -> np.ndarray:
  """Moves each row to the left by `shift` times its distance from the upper edge."""
  return _affine(pixels, (1, shift, 0, 0, 1, 0), resample)


def shear_y(pixels: np.ndarray, shift: float, resample: int = NEAREST) -> np.ndarray:
  """Moves each column upwards by `shift` times its distance from the left edge."""
  return _affine(pixels, (1, 0, 0, shift, 1, 0), resample)


def translate_x(pixels: np.ndarray, distance: float, resample: int = NEAREST) -> np.ndarray:
  """Moves the image to the left by `distance` pixels."""
  return _affine(pixels, (1, 0, distance, 0, 1, 0), resample)


def translate_y(pixels: np.ndarray, distance: float, resample: int = NEAREST) -> np.ndarray:
  """Moves the image upwards by `distance` pixels."""
  return _affine(pixels, (1, 0, 0, 0, 1, distance), resample)


def cutout(pixels: np.ndarray, row: int, column: int, reach: int) -> np.ndarray:
  """Makes a square grey: `reach` pixels from its centre in each direction, inside the image."""
  out = pixels.copy()
  out[max(0, row - reach) : row + reach, max(0, column - reach) : column + reach] = _GREY
  return out


def replace(pixels: np.ndarray, row: int, column: int, patch: np.ndarray) -> np.ndarray:
  """Pastes `patch`, (h, w, 3), into the image; its upper left corner is at (row, column)."""
  out = pixels.copy()
  out[row : row + patch.shape[0], column : column + patch.shape[1]] = patch
  return out


def grey(pixels: np.ndarray) -> np.ndarray:
  """The grey image, with three equal channels."""
  return np.asarray(Image.fromarray(pixels).convert("L").convert("RGB"))


def blur(pixels: np.ndarray, radius: float) -> np.ndarray:
  """Pillow's approximation of a Gaussian blur, with this standard deviation in pixels."""
  return np.asarray(Image.fromarray(pixels).filter(ImageFilter.GaussianBlur(radius)))


def _mapped(pixels: np.ndarray, *levels: np.ndarray) -> np.ndarray:
  """Maps levels by a table of shape (256,): one for all channels, or one for each channel."""
  return cv2.LUT(pixels, np.stack(levels, axis=-1).astype(np.uint8)[None])


def _blended_levels(flat: int, factor: float) -> np.ndarray:
  """The levels blended with one level, in Pillow's own arithmetic."""
  return np.asarray(Image.blend(Image.new("L", _RAMP.size, flat), _RAMP, factor))[0]


def _stretched_levels(channel: np.ndarray) -> np.ndarray:
  least, most, *_ = cv2.minMaxLoc(channel)
  if most == least:
    return _LEVELS
  scale = 255.0 / (most - least)
  return np.clip(_LEVELS * scale + -least * scale, 0, 255).astype(np.int64)


def _equal_levels(channel: np.ndarray) -> np.ndarray:
  counts = cv2.calcHist([channel], [0], None, [256], [0, 256]).ravel().astype(np.int64)
  step = int(counts.sum() - counts[counts.nonzero()[0][-1]]) // 255
  if not step:
    return _LEVELS
  below = np.cumsum(counts) - counts
  return np.minimum((below + step // 2) // step, 255)


def _affine(pixels: np.ndarray, matrix: tuple, resample: int) -> np.ndarray:
  image = Image.fromarray(pixels)
  moved = image.transform(
    image.size, Image.Transform.AFFINE, matrix, resample, fillcolor=(_GREY,) * 3
  )
  return np.asarray(moved)
