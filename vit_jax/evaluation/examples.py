"""Some images of a set, kept as the model saw them, and pictures made of images."""

import io
from collections.abc import Callable, Mapping

import numpy as np
from PIL import Image

from vit_jax.data.images import BadImage, as_stored
from vit_jax.storage import files
from vit_jax.storage.paths import Path

IMAGES = "images"  # folder of the images of a set
KEPT = 16  # images of a set
WORST = 8  # mistakes at most


def chosen(labels: np.ndarray, predictions: np.ndarray, probabilities: np.ndarray) -> list[int]:
  """The rows that are kept, KEPT at most, ascending: `worst`, and others at equal distances."""
  mistakes = worst(labels, predictions, probabilities)
  others = np.setdiff1d(np.arange(len(labels)), mistakes).tolist()
  count = min(KEPT - len(mistakes), len(others))
  return sorted([*mistakes, *(others[i * len(others) // count] for i in range(count))])


def worst(labels: np.ndarray, predictions: np.ndarray, probabilities: np.ndarray) -> list[int]:
  """The rows of the wrong predictions with the highest probability, the worst first.

  Args:
    labels, predictions: (N,) numbers or names of classes.
    probabilities: (N,) of the predictions.
  """
  wrong = np.flatnonzero(labels != predictions)
  order = np.argsort(-probabilities[wrong], kind="stable")
  return wrong[order[:WORST]].tolist()


def read_images(rows: list[int], image: Callable[[int], np.ndarray]) -> dict[int, np.ndarray]:
  """The images of rows, (S, S, 3) uint8 each, without those that can no longer be read."""
  images = {}
  for row in rows:
    try:
      images[row] = image(row)
    except (BadImage, OSError):
      continue
  return images


def write(folder: Path, images: Mapping[int, np.ndarray]):
  """Writes each image as FOLDER/ROW.png, in place of those that an earlier run left there.

  Raises:
    OSError: the folder cannot be written to.
  """
  files.remove(folder)
  files.make_folder(folder)
  for row, image in images.items():
    files.write_bytes(folder / f"{row}.png", png(image))


GAP = 4  # white pixels between images
LEAST = 96  # smallest side of an image, pixels; smaller images are enlarged by a whole number


def picture_table(*columns: np.ndarray) -> np.ndarray:
  """A picture with one row for each image.

  Args:
    columns: (N, S, S, C) uint8 each; image i of every column stands in row i.

  Returns:
    (H, W, 3 or 4) uint8, as `visible`.
  """
  columns = [visible(column) for column in columns]
  factor = -(-LEAST // columns[0].shape[1])
  images = np.stack(columns, axis=1).repeat(factor, axis=2).repeat(factor, axis=3)
  framed = np.pad(images, ((0, 0), (0, 0), (GAP, GAP), (GAP, GAP), (0, 0)), constant_values=255)
  rows, count, height, width, channels = framed.shape
  return framed.swapaxes(1, 2).reshape(rows * height, count * width, channels)


def grid(images: np.ndarray, columns: int) -> np.ndarray:
  """A picture with the images in raster order.

  Args:
    images: (N, S, S, C) uint8.
    columns: images in a row; the last row is filled up with white.

  Returns:
    (H, W, 3 or 4) uint8, as `visible`.
  """
  white = np.full((-len(images) % columns, *images.shape[1:]), 255, np.uint8)
  rows = np.concatenate([images, white]).reshape(-1, columns, *images.shape[1:])
  return picture_table(*rows.swapaxes(0, 1))


def visible(pixels: np.ndarray) -> np.ndarray:
  """Pixels (..., C) as RGB or RGBA: one or two channels are grey by the first; of many, three."""
  channels = pixels.shape[-1]
  if channels < 3:
    return pixels[..., :1].repeat(3, axis=-1)
  if channels > 4:
    return pixels[..., :3]
  return pixels


def to_look_at(image: bytes | np.ndarray, *, max_pixels: int) -> np.ndarray:
  """An image of any number of channels as RGB, (H, W, 3) uint8; see `visible`.

  Args: as of vit_jax/data/images.py.

  Raises:
    BadImage: as `images.decode`.
  """
  return visible(as_stored(image, max_pixels=max_pixels))[..., :3]


def png(picture: np.ndarray) -> bytes:
  """A picture (H, W, C) uint8 as the bytes of a PNG file, as `visible`."""
  stream = io.BytesIO()
  Image.fromarray(visible(picture)).save(stream, format="PNG")
  return stream.getvalue()
