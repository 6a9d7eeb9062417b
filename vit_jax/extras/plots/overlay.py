"""Maps of attention over images (Figures 6 and 14), and colours of patches beside them."""

import cv2
import numpy as np

from vit_jax.data.crops import Box

RANGE = 0.98  # values from this quantile of a map on get the brightest colour
CAPTION = f"Yellow is the {RANGE:.0%} quantile of a map or more, black is 0."
SHARE = 0.55  # weight of the map's colours in the overlay; the rest is the image
TINT = (255, 90, 0)  # red, green, blue
TINTED = 0.7  # weight of the tint where the map has its quantile `RANGE` or more
UNSEEN = 0.3  # brightness of pixels that the model does not see
GAP = 4  # white pixels between the image and its overlay
LEAST = 160  # height of the result, pixels


def overlay(image: np.ndarray, attention: np.ndarray, box: Box | None = None) -> np.ndarray:
  """The image under the colours of the map: black is 0, yellow the quantile `RANGE` or more.

  In large models a few patches get many times the attention of all others (Darcet et al., "Vision
  Transformers need registers", 2023). If the largest value were yellow, the rest of the map would
  be black.

  Args:
    image: (H, W, 3) uint8, of any size and aspect.
    attention: (rows, columns), not negative.
    box: the box of the image that the model sees, the rest is darkened; None: the whole image.

  Returns:
    (H, W, 3) uint8.
  """
  box = box or Box(0, 0, *image.shape[:2])
  smooth = smoothed(attention, box.height, box.width)
  colours = cv2.applyColorMap(np.round(255 * smooth).astype(np.uint8), cv2.COLORMAP_INFERNO)
  seen = image[box.top : box.top + box.height, box.left : box.left + box.width]
  return _outside(image, box, (1 - SHARE) * seen + SHARE * colours[..., ::-1])


def heat(attention: np.ndarray) -> np.ndarray:
  """The colours of the map alone, a square for each patch: (rows, columns, 3) uint8."""
  values = np.round(255 * scaled(attention)).astype(np.uint8)
  return cv2.applyColorMap(values, cv2.COLORMAP_INFERNO)[..., ::-1]


def tinted(image: np.ndarray, attention: np.ndarray) -> np.ndarray:
  """The image, tinted where the map is high; it stays readable in a small picture.

  Args:
    image: (H, W, 3) uint8.
    attention: (rows, columns), not negative.

  Returns:
    (H, W, 3) uint8.
  """
  weight = TINTED * smoothed(attention, *image.shape[:2])[..., None]
  return np.round((1 - weight) * image + weight * np.float32(TINT)).astype(np.uint8)


def smoothed(attention: np.ndarray, height: int, width: int) -> np.ndarray:
  """The map as `scaled`, at the size of an image, (height, width)."""
  return cv2.resize(scaled(attention), (width, height), interpolation=cv2.INTER_LINEAR)


def scaled(attention: np.ndarray) -> np.ndarray:
  """The map (rows, columns) float32 from 0 to 1, its quantile `RANGE` or more."""
  bright = np.quantile(attention, RANGE, method="higher") or attention.max()
  return np.minimum(attention.astype(np.float32) / max(float(bright), 1e-30), 1)


def coloured(image: np.ndarray, colours: np.ndarray, box: Box | None = None) -> np.ndarray:
  """The colours of the patches in place of the image, in squares.

  Args:
    image: (H, W, 3) uint8.
    colours: (rows, columns, 3), from 0 to 1.
    box: as in `overlay`.

  Returns:
    (H, W, 3) uint8.
  """
  box = box or Box(0, 0, *image.shape[:2])
  pixels = np.round(255 * colours).astype(np.uint8)
  size = box.width, box.height
  return _outside(image, box, cv2.resize(pixels, size, interpolation=cv2.INTER_NEAREST_EXACT))


def _outside(image: np.ndarray, box: Box, inside: np.ndarray) -> np.ndarray:
  """The image, darkened, with another picture (height, width, 3) in its box."""
  result = image * np.float32(UNSEEN)
  result[box.top : box.top + box.height, box.left : box.left + box.width] = inside
  return np.round(result).astype(np.uint8)


def pair(image: np.ndarray, values: np.ndarray, box: Box | None = None, draw=overlay) -> np.ndarray:
  """The image and what is drawn of it side by side; small images are enlarged by a whole factor.

  Args:
    image: (H, W, 3) uint8.
    values: a map of attention, or what else `draw` takes.
    box: as in `overlay`.
    draw: (image, values, box) -> (H, W, 3) uint8: `overlay` or `coloured`.

  Returns:
    (H, 2 W + GAP, 3) uint8.
  """
  factor = -(-LEAST // len(image))
  large = image.repeat(factor, axis=0).repeat(factor, axis=1)
  box = box and Box(*(factor * side for side in box))
  gap = np.full((len(large), GAP, 3), 255, np.uint8)
  return np.concatenate([large, gap, draw(large, values, box)], axis=1)
