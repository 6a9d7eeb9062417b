"""Figures of pictures in rows and columns, with captions or names."""

import textwrap
from collections.abc import Sequence

import cv2
import numpy as np

from vit_jax.evaluation import examples
from vit_jax.extras.plots.labels import caption, label

COLUMNS = 4
NAME_WIDTH = 16  # characters of a class name that fit beneath a neighbour
MAX_HEIGHT = 400  # height of a picture in a figure, pixels


def figure(pictures: Sequence[np.ndarray], captions: Sequence[str], title: str = ""):
  """A Matplotlib figure: pictures (H, W, 3) uint8 of any size, with captions beneath."""
  from matplotlib.figure import Figure  # slow to import

  columns = min(COLUMNS, len(pictures))
  rows = -(-len(pictures) // columns)
  drawn = Figure(figsize=(2.4 * columns, 1.9 * rows), layout="constrained")
  if title:
    drawn.suptitle(caption(title, 26 * columns), fontsize=9)
  axes = drawn.subplots(rows, columns, squeeze=False).flatten()
  for each in axes:
    each.set(xticks=[], yticks=[])
    each.spines[:].set_visible(False)
  for each, picture, lines in zip(axes, pictures, captions, strict=False):
    each.imshow(sized(picture), interpolation="nearest")
    each.set_xlabel(lines, fontsize=9)
  return drawn


def picture_table(columns: Sequence[np.ndarray], classes: Sequence[Sequence[str]]):
  """A Matplotlib figure: a row for each image, with its nearest neighbours and their classes.

  Args:
    columns: (N, S, S, 3) uint8 each, as in `examples.picture_table`: images, then their neighbours.
    classes: for each row, the class of each image in it; () if they are not known. Classes that
      differ from the first image's are red.
  """
  from matplotlib.figure import Figure  # slow to import

  picture = examples.picture_table(*columns)
  height = picture.shape[0] // len(columns[0])
  width = picture.shape[1] // len(columns)
  size = (1.1 * len(columns) + 0.3, 1.1 * len(columns[0]) + 0.6)  # inches
  drawn = Figure(figsize=size, layout="constrained")
  axes = drawn.subplots()
  axes.imshow(picture, interpolation="nearest")
  axes.spines[:].set_visible(False)
  axes.set_yticks([])
  heads = ["image", "nearest", *(f"{i}." for i in range(2, len(columns)))]
  axes.xaxis.tick_top()
  axes.set_xticks([(i + 0.5) * width for i in range(len(columns))], heads[: len(columns)])
  axes.tick_params(length=0)
  for row, names in enumerate(classes):
    for column, name in enumerate(names):
      colour = "firebrick" if name != names[0] else "black"
      box = dict(facecolor=colour, edgecolor="none", pad=1, alpha=0.75)
      place = (column * width + examples.GAP + 2, (row + 1) * height - examples.GAP - 3)
      lines = "\n".join(textwrap.wrap(label(name), NAME_WIDTH))
      axes.text(*place, lines, size=6.5, color="white", bbox=box, va="bottom", clip_on=True)
  return drawn


def rows(names: Sequence[str], pictures: Sequence[np.ndarray]):
  """A Matplotlib figure: a row of images for each name.

  Args:
    names: the names of the rows.
    pictures: (N, S, S, 3) uint8 for each row.
  """
  from matplotlib.figure import Figure  # slow to import

  picture = examples.picture_table(*np.stack(pictures).swapaxes(0, 1))
  height = picture.shape[0] / len(names)
  size = picture.shape[1] / height + 2.2, len(names) + 0.2  # inches
  drawn = Figure(figsize=size, layout="constrained")
  axes = drawn.subplots()
  axes.imshow(picture, interpolation="nearest")
  axes.spines[:].set_visible(False)
  axes.set_xticks([])
  axes.set_yticks([(i + 0.5) * height for i in range(len(names))], names)
  axes.tick_params(length=0)
  return drawn


def sized(picture: np.ndarray) -> np.ndarray:
  """The picture for a figure; reduced if it is large."""
  height, width = picture.shape[:2]
  if height <= MAX_HEIGHT:
    return picture
  size = max(round(width * MAX_HEIGHT / height), 1), MAX_HEIGHT
  return cv2.resize(picture, size, interpolation=cv2.INTER_AREA)
