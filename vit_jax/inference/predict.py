"""Class probabilities of images in files."""

import concurrent.futures
import dataclasses
import functools
import glob
import itertools
import json
import logging
import os
import pathlib
from collections.abc import Iterable, Iterator, Sequence

import jax
import numpy as np

from vit_jax.config import Data
from vit_jax.data import image_files
from vit_jax.data.device import normalize
from vit_jax.data.images import BadImage, evaluate_image
from vit_jax.inference.model import LoadedModel
from vit_jax.storage import files
from vit_jax.storage.paths import local_path

_log = logging.getLogger(__name__)
MAX_PIXELS = Data().max_pixels
THREADS = 16


@dataclasses.dataclass(frozen=True)
class Prediction:
  """The most probable classes of an image, or the reason why it could not be read.

  Attributes:
    path: the file.
    classes: (name, probability) of the most probable classes, most probable first.
    error: the reason; empty if the image was read.
  """

  path: pathlib.Path
  classes: tuple[tuple[str, float], ...]
  error: str = ""


def find_images(patterns: Sequence[str]) -> list[pathlib.Path]:
  """The files that patterns name: single files, all images below directories, matches of globs.

  The files come in the order of the patterns, sorted within each pattern, each file once. The log
  counts the files of directories that are not images.

  Raises:
    ValueError: a pattern matches nothing.
  """
  paths = {}
  for path in (path for pattern in patterns for path in _images_of(pattern)):
    paths.setdefault(os.path.abspath(path), path)
  return list(paths.values())


def _images_of(pattern: str) -> list[pathlib.Path]:
  if not os.path.lexists(pattern):
    pattern = str(local_path(pattern)) if pattern else pattern
  path = pathlib.Path(pattern)
  if pattern and path.is_dir():
    return _images_below(path)
  if os.path.lexists(pattern):
    return [path]
  if not glob.has_magic(pattern):
    raise ValueError(f"{pattern!r} does not exist; give images, directories, or globs in quotes.")
  matches = [pathlib.Path(match) for match in glob.glob(pattern, recursive=True)]
  paths = [path for path in matches if not path.is_dir()]
  for folder in (path for path in matches if path.is_dir()):
    paths += [folder / name for name in image_files.find(str(folder)).names]
  paths = sorted(set(paths))
  if not paths:
    raise ValueError(f"{pattern!r} matches no file; give images, directories, or globs in quotes.")
  return paths


def _images_below(folder: pathlib.Path) -> list[pathlib.Path]:
  listing = image_files.find(str(folder))
  others = listing.left_out.in_words()
  if not listing.names:
    others_in_words = f" Left out: {others}." if others else ""
    raise ValueError(f"{str(folder)!r} holds no {image_files.LIST} files.{others_in_words}")
  if others:
    _log.warning("Left out of %r: %s.", str(folder), others)
  return sorted(folder / name for name in listing.names)


def predict(
  model: LoadedModel,
  paths: Iterable[pathlib.Path],
  *,
  top: int,
  batch_size: int,
  max_pixels: int = MAX_PIXELS,
) -> Iterator[Prediction]:
  """Predictions of `paths`, in their order.

  Args:
    model: a model for a known image size (`LoadedModel.at_size`).
    paths: image files.
    top: number of classes for each image.
    batch_size: images at a time.
    max_pixels: larger images are not read.

  Raises:
    ValueError: the weights have no head.
  """
  if not model.has_head:
    raise ValueError(
      "these weights have no head, so they cannot name the classes of images; fine-tune them first."
    )
  module, card, params = model.module, model.card, jax.device_put(model.params)
  side, names = card.image_size, model.class_names

  @jax.jit
  def most_probable(params, images):
    logits, _ = module.apply({"params": params}, normalize(images, module.dtype), train=False)
    return jax.lax.top_k(model.probabilities(logits), min(top, module.num_classes))

  read = functools.partial(read_image, size=side, resize=card.resize, max_pixels=max_pixels)
  for batch, images in decoded(paths, read, batch_size):
    good = [image for image in images if isinstance(image, np.ndarray)]
    blank = [np.zeros((side, side, 3), np.uint8)] * (batch_size - len(good))
    values, classes = jax.device_get(most_probable(params, np.stack(good + blank)))
    rows = iter(zip(classes, values, strict=True))
    for path, image in zip(batch, images, strict=True):
      if isinstance(image, str):
        yield Prediction(path, (), error=image)
      else:
        ranked = zip(*next(rows), strict=True)
        yield Prediction(path, tuple((names[i], float(p)) for i, p in ranked))


def read_image(path: pathlib.Path, *, size: int, resize: int, max_pixels: int) -> np.ndarray | str:
  """The image, prepared as in an evaluation; or the reason why it cannot be read."""
  try:
    data = files.read_bytes(path, most=image_files.MAX_BYTES)
    return evaluate_image(data, size=size, resize=resize, max_pixels=max_pixels)
  except (BadImage, OSError) as error:
    return str(error)


def decoded(paths: Iterable[pathlib.Path], read, batch_size: int):
  """Batches of (paths, results of `read`); the next batch is read while one is in use."""
  paths = iter(paths)
  with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:

    def begin():
      batch = list(itertools.islice(paths, batch_size))
      return batch, [pool.submit(read, path) for path in batch]

    batch, reading = begin()
    while batch:
      following = begin()
      yield batch, [future.result() for future in reading]
      batch, reading = following


def write(path: pathlib.Path, predictions: list[Prediction]):
  """Writes predictions: CSV has a line for each image and class, JSON an object for each image."""
  good = [p for p in predictions if not p.error]
  if path.suffix == ".json":
    rows = [
      {"path": str(p.path), "classes": [{"name": n, "probability": x} for n, x in p.classes]}
      for p in good
    ]
    files.write_text(path, json.dumps(rows, indent=2) + "\n")
  else:
    rows = [
      (p.path, rank, name, probability)
      for p in good
      for rank, (name, probability) in enumerate(p.classes, start=1)
    ]
    files.write_csv(path, [("path", "rank", "class", "probability"), *rows])
