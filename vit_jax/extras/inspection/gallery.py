"""The images on which a user inspects a model: files, or examples of a source."""

import concurrent.futures
import dataclasses
import functools
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from vit_jax.config import ConfigError, Dataset, sides
from vit_jax.data import image_files, sources
from vit_jax.data.crops import Box
from vit_jax.data.images import BadImage, evaluate_image
from vit_jax.data.patterns import find_images
from vit_jax.evaluation.examples import to_look_at
from vit_jax.inference.predict import MAX_PIXELS, THREADS
from vit_jax.recipes.loading import columns_named, keys_of
from vit_jax.storage import files
from vit_jax.weights.card import Card


@dataclasses.dataclass(frozen=True)
class Gallery:
  """Some images; they are read when they are needed.

  Attributes:
    names: the names of the images.
    read: (place) -> an encoded file, or uint8 pixels.
    labels: the names of each image's classes, joined, "" without a label; () if they are not known.
    among: the number of images to choose from.
    max_pixels: larger images are refused.
  """

  names: Sequence[str]
  read: Callable[[int], bytes | np.ndarray]
  labels: Sequence[str] = ()
  among: int = 0
  max_pixels: int = MAX_PIXELS

  def __len__(self) -> int:
    return len(self.names)

  def original(self, place: int) -> np.ndarray:
    """An image at its own size, as RGB, (H, W, 3) uint8.

    Raises:
      ConfigError: it cannot be read.
    """
    return self._decoded(place, lambda data: to_look_at(data, max_pixels=self.max_pixels))

  def squares(self, card: Card) -> np.ndarray:
    """All images as an evaluation prepares them, (N, S, S, C) uint8.

    Raises:
      ConfigError: an image cannot be read.
    """
    decode = functools.partial(evaluate_image, max_pixels=self.max_pixels, **card.preparation())

    def prepared(place: int) -> np.ndarray:
      return self._decoded(place, decode)

    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
      return np.stack(list(pool.map(prepared, range(len(self)))))

  def in_words(self) -> str:
    """The number of images."""
    if len(self) == self.among:
      return f"{len(self):,} image{'s' * (len(self) != 1)}"
    return f"{len(self):,} of {self.among:,} images"

  def _decoded(self, place, decode):
    try:
      return decode(self.read(place))
    except (BadImage, OSError) as error:
      reason = str(error).rstrip(".")
      raise ConfigError(f"{self.names[place]} cannot be shown: {reason}; leave it out.") from error


def gallery(
  words: Sequence[str],
  split: str,
  count: int,
  *,
  labelled: bool = False,
  max_pixels: int = MAX_PIXELS,
) -> Gallery:
  """The images that the command line names.

  Args:
    words: files, folders and globs; or one source, as config.data.train.source names it or
      recognised by its content, perhaps with the keys of its columns.
    split: of the source.
    count: the most images; larger sets are sampled evenly.
    labelled: whether the labels of a source are wanted.
    max_pixels: larger images are refused.

  Raises:
    ConfigError: nothing is there, or the source or its split does not exist.
  """
  if len(words) == 1:
    spec, keys = keys_of(words[0])
    if spec := source_in(spec, named=bool(keys)):
      how = dict(labelled=labelled, max_pixels=max_pixels)
      return of_source(spec, keys, split, count, **how)
  if split:
    raise ConfigError(f"--split={split} is for one source, and files have no splits.")
  try:
    paths = find_images(words)
  except (ValueError, OSError) as error:
    raise ConfigError(f"--images: {error}") from error
  chosen = spaced(paths, count)
  return Gallery(
    [str(path) for path in chosen],
    lambda i: files.read_bytes(chosen[i], most=image_files.MAX_BYTES),
    among=len(paths),
    max_pixels=max_pixels,
  )


def of_source(
  spec: str,
  keys: Mapping[str, str],
  split: str,
  count: int,
  *,
  labelled: bool,
  max_pixels: int,
) -> Gallery:
  """Examples of a source, with these keys of its columns; other arguments as in `gallery`."""
  if not labelled:
    key = keys.get("label_key", Dataset().label_key)
    keys = {**keys, "label_key": sources.label_key_of(spec, split, key)}
  with columns_named():
    source = sources.open_source(spec, split=split, max_pixels=max_pixels, **keys)
  if not len(source):
    raise ConfigError(f"{spec} has no images in the split {split!r}.")
  places = spaced(range(len(source)), count)
  return Gallery(
    [source.name(i) for i in places],
    lambda i: source[places[i]].image,
    _class_names(source, places) if labelled else [],
    len(source),
    max_pixels,
  )


def _class_names(source: sources.Source, places: Sequence[int]) -> list[str]:
  """The classes of examples; [] if a label has no class, such as -1 in a hidden test set."""
  if not source.class_names:
    return []
  names = dict(enumerate(source.class_names))
  labels = [source.labels(i) for i in places]
  if any(label not in names for each in labels for label in each):
    return []
  return [" and ".join(names[label] for label in each) for each in labels]


def source_in(word: str, *, named: bool) -> str:
  """The source that a word of the command line means; "" if it means files.

  A folder of images means the files in it, which need no classes; other folders are recognised by
  their content.

  Args:
    word: without the keys of columns.
    named: whether keys were given, which only a source has.
  """
  spec = sources.meant(word)
  of_files = (
    pathlib.Path(os.path.expanduser(word)).is_dir() and spec.startswith("folder:") and not named
  )
  return spec if sources.is_named(spec) and not of_files else ""


def spaced(items: Sequence, count: int) -> list:
  """All items, or `count` evenly spaced ones."""
  if len(items) <= count:
    return list(items)
  return [items[i * len(items) // count] for i in range(count)]


def seen_box(height: int, width: int, card: Card) -> Box:
  """The part of an image that `evaluate_image` cuts out for the model."""
  if not card.resize:
    return Box(0, 0, height, width)
  scales = [side / new for side, new in zip((height, width), sides(card.resize), strict=True)]
  if not card.squeeze:
    scales = [min(scales)] * 2
  seen = zip(sides(card.image_size), scales, strict=True)
  down, across = (max(1, round(side * scale)) for side, scale in seen)
  return Box((height - down) // 2, (width - across) // 2, down, across)
