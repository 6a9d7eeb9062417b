"""Maps of attention over images (Figures 6 and 14)."""

from collections.abc import Sequence

import cv2
import numpy as np

from vit_jax.data.images import Box

SHARE = 0.55  # of the colours of the map in the overlay; the rest is the image
UNSEEN = 0.3  # brightness of what the model does not see
GAP = 4  # white pixels between the image and its overlay
LEAST, MOST = 160, 400  # height of an image in a figure, pixels


def overlay(image: np.ndarray, attention: np.ndarray, box: Box | None = None) -> np.ndarray:
  """The image under the colours of the map: black is 0, yellow the map's largest value.

  Args:
    image: (H, W, 3) uint8, of any size and aspect.
    attention: (rows, columns), not negative.
    box: the part of the image that the model sees, the rest is darkened; None: all of it.

  Returns:
    (H, W, 3) uint8.
  """
  box = box or Box(0, 0, *image.shape[:2])
  scaled = attention.astype(np.float32) / max(float(attention.max()), 1e-30)
  smooth = cv2.resize(scaled, (box.width, box.height), interpolation=cv2.INTER_LINEAR)
  colours = cv2.applyColorMap(np.round(255 * smooth).astype(np.uint8), cv2.COLORMAP_INFERNO)
  result = image * np.float32(UNSEEN)
  part = np.s_[box.top : box.top + box.height, box.left : box.left + box.width]
  result[part] = (1 - SHARE) * image[part] + SHARE * colours[..., ::-1]
  return np.round(result).astype(np.uint8)


def pair(image: np.ndarray, attention: np.ndarray, box: Box | None = None) -> np.ndarray:
  """The image and its overlay side by side; small images are enlarged by a whole number.

  Args:
    image, attention, box: as in `overlay`.

  Returns:
    (H, 2 W + GAP, 3) uint8.
  """
  factor = -(-LEAST // len(image))
  large = image.repeat(factor, axis=0).repeat(factor, axis=1)
  box = box and Box(*(factor * side for side in box))
  gap = np.full((len(large), GAP, 3), 255, np.uint8)
  return np.concatenate([large, gap, overlay(large, attention, box)], axis=1)


def figure(pairs: Sequence[np.ndarray], captions: Sequence[str]):
  """A figure of Matplotlib: pictures (H, W, 3) uint8 of any size, with captions beneath."""
  from matplotlib.figure import Figure  # slow to import

  columns = min(4, len(pairs))
  rows = -(-len(pairs) // columns)
  drawn = Figure(figsize=(3.4 * columns, 2.2 * rows), layout="constrained")
  axes = drawn.subplots(rows, columns, squeeze=False).flatten()
  for each in axes:
    each.axis("off")
  for each, picture, caption in zip(axes, pairs, captions, strict=False):
    each.imshow(sized(picture), interpolation="nearest")
    each.set_title(caption, fontsize=8, y=-0.02, verticalalignment="top")
  return drawn


def sized(picture: np.ndarray) -> np.ndarray:
  """A picture for a figure: a large one is reduced."""
  height, width = picture.shape[:2]
  if height <= MOST:
    return picture
  size = max(round(width * MOST / height), 1), MOST
  return cv2.resize(picture, size, interpolation=cv2.INTER_AREA)
