"""Figures of pictures in rows and columns, with captions or names."""

import textwrap
from collections.abc import Sequence

import cv2
import numpy as np

from vit_jax.evaluation import examples
from vit_jax.extras.plots.labels import LETTERS, LINE, caption, label

COLUMNS = 4
NAME_WIDTH = 16  # characters of a class name that fit beneath a neighbour
MAX_HEIGHT = 400  # height of a picture in a figure, pixels
CELL = 2.4  # width of a picture in a figure, inches
LEAST_WIDTH = 4.8  # of a figure, inches
MAX_ASPECT = 1.5  # of a picture in a figure: height by width
SQUARE = 1.2  # side of a square of a sheet, inches
SQUARE_LETTERS = 20  # of a name above it
MARGIN = 0.06  # between squares, inches


def figure(pictures: Sequence[np.ndarray], captions: Sequence[str], title: str = ""):
  """A Matplotlib figure: pictures (H, W, 3) uint8 of any size, with captions beneath."""
  from matplotlib.figure import Figure  # slow to import

  columns = min(COLUMNS, len(pictures))
  rows = -(-len(pictures) // columns)
  width = max(CELL, LEAST_WIDTH / columns)
  aspects = np.zeros(rows * columns)
  aspects[: len(pictures)] = [picture.shape[0] / picture.shape[1] for picture in pictures]
  tallest = aspects.reshape(rows, columns).max(axis=1)
  lines = max(text.count("\n") + bool(text) for text in captions)
  heights = np.minimum(tallest, MAX_ASPECT) * width + lines * LINE
  text = caption(title, round(LETTERS * width * columns))
  height = heights.sum() + (text.count("\n") + 1) * LINE * bool(text)
  drawn = Figure(figsize=(width * columns, height), layout="constrained")
  if text:
    drawn.suptitle(text, fontsize=9)
  grid = drawn.subplots(rows, columns, squeeze=False, height_ratios=heights)
  for each in grid.flat:
    each.set(xticks=[], yticks=[])
    each.spines[:].set_visible(False)
  for each, picture, lines in zip(grid.flat, pictures, captions, strict=False):
    each.imshow(sized(picture), interpolation="antialiased")
    each.set_xlabel(lines, fontsize=9)
    each.set_anchor("S")
  return drawn


def sheet(rows: Sequence[Sequence[tuple[str, np.ndarray]]], title: str):
  """A Matplotlib figure of squares in rows, each with its name above it.

  Args:
    rows: (name, (S, S, 3) uint8) of each square; () for a square that stays empty.
    title: in lines above all.
  """
  from matplotlib.figure import Figure  # slow to import

  width = max(map(len, rows)) * (SQUARE + MARGIN) + MARGIN
  text = caption(title, round(LETTERS * width))
  top = (text.count("\n") + 1) * LINE * bool(text)
  height = len(rows) * (SQUARE + LINE) + top + MARGIN
  drawn = Figure(figsize=(width, height))
  drawn.text(0.5, 1 - MARGIN / height, text, size=9, ha="center", va="top")
  for i, row in enumerate(rows):
    bottom = height - top - (i + 1) * (SQUARE + LINE)
    for j, cell in enumerate(row):
      if cell:
        left = MARGIN + j * (SQUARE + MARGIN)
        place = left / width, bottom / height, SQUARE / width, SQUARE / height
        axes = drawn.add_axes(place)
        axes.axis("off")
        axes.imshow(cell[1], interpolation="antialiased")
        axes.set_title(cell[0][:SQUARE_LETTERS], size=7, pad=2)
  return drawn


def picture_table(columns: Sequence[np.ndarray], classes: Sequence[Sequence[str]]):
  """A Matplotlib figure: a row for each image, with its nearest neighbours and their classes.

  Args:
    columns: (N, S, S, C) uint8 each, as in `examples.picture_table`: images, then their neighbours.
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
