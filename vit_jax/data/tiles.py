"""Arranges images in rows and columns of one picture."""

import io

import numpy as np
from PIL import Image

GAP = 4  # white pixels between images
LEAST = 96  # smallest side of an image, pixels; smaller images are enlarged by a whole number


def picture_table(*columns: np.ndarray) -> np.ndarray:
  """A picture with one row for each image.

  Args:
    columns: (N, S, S, 3) uint8 each; image i of every column stands in row i.

  Returns:
    (H, W, 3) uint8.
  """
  factor = -(-LEAST // columns[0].shape[1])
  images = np.stack(columns, axis=1).repeat(factor, axis=2).repeat(factor, axis=3)
  framed = np.pad(images, ((0, 0), (0, 0), (GAP, GAP), (GAP, GAP), (0, 0)), constant_values=255)
  rows, count, height, width, channels = framed.shape
  return framed.swapaxes(1, 2).reshape(rows * height, count * width, channels)


def grid(images: np.ndarray, columns: int) -> np.ndarray:
  """A picture with the images in raster order.

  Args:
    images: (N, S, S, 3) uint8.
    columns: images in a row; the last row is filled up with white.

  Returns:
    (H, W, 3) uint8.
  """
  white = np.full((-len(images) % columns, *images.shape[1:]), 255, np.uint8)
  rows = np.concatenate([images, white]).reshape(-1, columns, *images.shape[1:])
  return picture_table(*rows.swapaxes(0, 1))


def png(picture: np.ndarray) -> bytes:
  """A picture (H, W, 3) uint8 as the bytes of a PNG file."""
  stream = io.BytesIO()
  Image.fromarray(picture).save(stream, format="PNG")
  return stream.getvalue()
