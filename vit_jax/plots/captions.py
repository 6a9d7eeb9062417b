"""Pictures of any size in rows and columns, each with its caption beneath."""

from collections.abc import Sequence

import cv2
import numpy as np

COLUMNS = 4
MOST = 400  # height of a picture in a figure, pixels


def figure(pictures: Sequence[np.ndarray], captions: Sequence[str]):
  """A figure of Matplotlib: pictures (H, W, 3) uint8 of any size, with captions beneath."""
  from matplotlib.figure import Figure  # slow to import

  columns = min(COLUMNS, len(pictures))
  rows = -(-len(pictures) // columns)
  drawn = Figure(figsize=(3.4 * columns, 2.2 * rows), layout="constrained")
  axes = drawn.subplots(rows, columns, squeeze=False).flatten()
  for each in axes:
    each.set(xticks=[], yticks=[])
    each.spines[:].set_visible(False)
  for each, picture, caption in zip(axes, pictures, captions, strict=False):
    each.imshow(sized(picture), interpolation="nearest")
    each.set_xlabel(caption, fontsize=8)
  return drawn


def sized(picture: np.ndarray) -> np.ndarray:
  """A picture for a figure: a large one is reduced."""
  height, width = picture.shape[:2]
  if height <= MOST:
    return picture
  size = max(round(width * MOST / height), 1), MOST
  return cv2.resize(picture, size, interpolation=cv2.INTER_AREA)
