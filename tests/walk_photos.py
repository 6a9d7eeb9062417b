"""Photographs of several formats and sizes, made from scikit-learn's two and from drawn shapes."""

import pathlib

import numpy as np
from PIL import Image, ImageDraw
from sklearn.datasets import load_sample_images

FORMATS = ("jpg", "png", "webp", "gif", "bmp")
CLASSES = ("china", "flower", "shapes")


def write(root: pathlib.Path, *, images: int, classes=CLASSES, seed: int = 0) -> pathlib.Path:
  """Writes so many images of each class into a folder of its own."""
  rng = np.random.default_rng(seed)
  photos = dict(zip(CLASSES, map(Image.fromarray, load_sample_images().images), strict=False))
  for name in classes:
    (root / name).mkdir(parents=True)
    for i in range(images):
      side, extra = rng.integers(48, 80, 2).tolist()
      image = _cut(photos[name], side, extra, rng) if name in photos else _drawn(side, rng)
      image.save(root / name / f"{i:02}.{FORMATS[i % len(FORMATS)]}")
  return root


def _cut(photo, side, extra, rng):
  """A part of a photograph, made smaller."""
  x, y = rng.integers(0, 200, 2).tolist()
  return photo.crop((x, y, x + 3 * side, y + 2 * side + extra)).resize(
    (side, side - 6 + extra // 8)
  )


def _drawn(side, rng):
  """A disk on a plain ground."""
  colours = rng.integers(0, 255, (2, 3)).tolist()
  image = Image.new("RGB", (side + 9, side), tuple(colours[0]))
  x, y = rng.integers(0, side // 2, 2).tolist()
  ImageDraw.Draw(image).ellipse((x, y, x + side // 2, y + side // 2), fill=tuple(colours[1]))
  return image
