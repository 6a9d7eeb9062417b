"""Class probabilities and features of images: files, Pillow images or arrays."""

import concurrent.futures
import dataclasses
import functools
import glob
import itertools
import json
import logging
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image

from vit_jax.config import Data
from vit_jax.data import image_files, pillow
from vit_jax.data.batches import normalize
from vit_jax.data.images import BadImage, evaluate_image
from vit_jax.process import text
from vit_jax.process.text import printable
from vit_jax.storage import files
from vit_jax.storage.paths import local_path
from vit_jax.weights.card import Card

_log = logging.getLogger(__name__)
MAX_PIXELS = Data().max_pixels
THREADS = 16
NOT_FINITE = "its logits are not finite numbers; the weights are damaged or have diverged."


@dataclasses.dataclass(frozen=True)
class Prediction:
  """The most probable classes of an image, or the reason why there are none.

  Attributes:
    name: the file, or "image 3" for the third of other images.
    classes: (name, probability) of the most probable classes, most probable first.
    error: the reason, such as `NOT_FINITE`; empty if there are classes.
  """

  name: str
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
  for pattern in patterns:
    for path in _images_of(pattern):
      paths.setdefault(os.path.abspath(path), path)
  return list(paths.values())


def _images_of(pattern: str) -> list[pathlib.Path]:
  if pattern and not os.path.lexists(pattern):
    pattern = str(local_path(pattern))
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
    paths += [folder / name for name in image_files.find(folder).names]
  paths = sorted(set(paths))
  if not paths:
    raise ValueError(f"{pattern!r} matches no file; give images, directories, or globs in quotes.")
  return paths


def _images_below(folder: pathlib.Path) -> list[pathlib.Path]:
  listing = image_files.find(folder)
  others = listing.left_out.in_words()
  if not listing.names:
    message = f"{str(folder)!r} holds no {image_files.LIST} files."
    if others:
      message += f" Left out: {others}."
    raise ValueError(message)
  if others:
    _log.warning("Left out of %r: %s.", str(folder), others)
  return sorted(folder / name for name in listing.names)


def predict(
  model,
  images: Iterable,
  *,
  top: int,
  batch_size: int,
  max_pixels: int = MAX_PIXELS,
  done: Callable[[int], None] = lambda images: None,
) -> Iterator[Prediction]:
  """Predictions of images, in their order.

  Args:
    model: a `LoadedModel` for a known image size (`LoadedModel.at_size`).
    images: as for `read_image`.
    top: number of classes for each image.
    batch_size: images at a time.
    max_pixels: larger images are not read.
    done: called with the number of images after each batch.

  Raises:
    ValueError: the weights have no head.
  """
  if not model.has_head:
    raise ValueError(
      "these weights have no head, so they cannot name the classes of images; fine-tune them first."
    )
  names = model.class_names

  def most_probable(logits, _):
    best = jax.lax.top_k(model.probabilities(logits), min(top, model.module.num_classes))
    return *best, jnp.isfinite(logits).all(axis=-1)

  options = dict(batch_size=batch_size, max_pixels=max_pixels, done=done)
  for name, output in outputs(model, most_probable, images, **options):
    if isinstance(output, str):
      yield Prediction(name, (), error=output)
    elif not output[-1]:
      yield Prediction(name, (), error=NOT_FINITE)
    else:
      ranked = zip(*output[:-1], strict=True)
      yield Prediction(name, tuple((names[i], float(p)) for p, i in ranked))


def features(
  model, images: Iterable, *, batch_size: int, done: Callable[[int], None] = lambda images: None
) -> np.ndarray:
  """The features of images, (N, D) float32; the model's card says which features these are.

  Args:
    model, images, batch_size, done: as for `predict`.

  Raises:
    ValueError: an image cannot be read, or features are not finite.
  """

  def wanted(_, features):
    return representation(features, model.card)

  rows = []
  for name, output in outputs(model, wanted, images, batch_size=batch_size, done=done):
    if isinstance(output, str):
      raise ValueError(f"{name} cannot be read: {output}")
    rows.append(output)
  result = np.stack(rows) if rows else np.zeros((0, model.module.feature_width()), np.float32)
  if wrong := int((~np.isfinite(result).all(axis=1)).sum()):
    raise ValueError(
      f"the features of {wrong:,} of {len(rows):,} images are not finite numbers; the weights are "
      "damaged or have diverged."
    )
  return result


def representation(features: dict[str, jax.Array], card: Card) -> jax.Array:
  """Of a module's features, those that the weights were trained for: (B, D) float32."""
  if card.representation == "patches":
    return jnp.float32(features["patches"]).mean(axis=1)
  return jnp.float32(features["pre_logits"])


def outputs(
  model,
  function: Callable,
  images: Iterable,
  *,
  batch_size: int,
  max_pixels: int = MAX_PIXELS,
  done: Callable[[int], None] = lambda images: None,
) -> Iterator[tuple[str, object]]:
  """Yields (name, output of `function`) for each image, or (name, why it cannot be read).

  Args:
    model: a `LoadedModel` for a known image size.
    function: (logits, features) of the module -> tree of arrays (N, ...).
    images, batch_size, max_pixels, done: as for `predict`.
  """
  side = model.card.image_size
  read = functools.partial(read_image, max_pixels=max_pixels, **model.card.preparation())
  images = list(images)
  batch_size = min(batch_size, len(images))
  names = (name_of(image, place) for place, image in enumerate(images, start=1))
  for batch in decoded(images, read, batch_size):
    good = [image for image in batch if isinstance(image, np.ndarray)]
    blank = [np.zeros((side, side, 3), np.uint8)] * (batch_size - len(good))
    outputs = _run(model.module, model.params_on_device, np.stack(good + blank))
    values = jax.device_get(function(*outputs))
    done(len(batch))
    rows = (jax.tree.map(lambda x, row=row: x[row], values) for row in range(len(good)))
    for image in batch:
      if isinstance(image, str):
        yield next(names), image
      else:
        yield next(names), next(rows)


@functools.partial(jax.jit, static_argnums=0)
def _run(module, params, pixels):
  """Logits and features of pixels (N, H, W, 3) uint8; compiled once for each module and size."""
  return module.apply({"params": params}, normalize(pixels, module.dtype), train=False)


def name_of(image, place: int) -> str:
  """The path of a file; for another image, its place among the images."""
  if isinstance(image, (str, os.PathLike)):
    return str(image)
  return f"image {place}"


def read_image(image, **preparation) -> np.ndarray | str:
  """An image prepared as in an evaluation, (S, S, 3) uint8; or why it cannot be read.

  Args:
    image: the path of a file, a Pillow image, or uint8 pixels (H, W) or (H, W, 3).
    **preparation: the other arguments of `evaluate_image`.
  """
  try:
    return evaluate_image(encoded_or_pixels(image), **preparation)
  except (BadImage, OSError) as error:
    return str(error)


def encoded_or_pixels(image) -> bytes | np.ndarray:
  """The bytes of a file, or the pixels of an image that is in memory.

  Raises:
    BadImage: it is no image, or has pixels other than uint8.
    OSError: the file cannot be read.
  """
  if isinstance(image, (str, os.PathLike)):
    return files.read_bytes(local_path(image), most=image_files.MAX_BYTES)
  if isinstance(image, Image.Image):
    return pillow.of_opened(image)
  if isinstance(image, np.ndarray) and image.dtype == np.uint8:
    return image
  kind = type(image).__name__
  if isinstance(image, np.ndarray):
    kind = f"an array of {image.dtype}"
  raise BadImage(f"it is {kind}; give a path, a Pillow image or an array of uint8 pixels.")


def decoded(images: Sequence, read: Callable, batch_size: int) -> Iterator[list]:
  """Batches of images as `read` returns them; reads the next batch while one is in use."""
  rest = iter(images)
  with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:

    def begin():
      return [pool.submit(read, image) for image in itertools.islice(rest, batch_size)]

    reading = begin()
    while reading:
      following = begin()
      yield [future.result() for future in reading]
      reading = following


def lines(predictions: Iterable[Prediction], form: str) -> Iterator[str]:
  """The predictions of images that could be read, as text.

  Args:
    predictions: the predictions.
    form: "text" has a line for each image, "csv" a line for each image and class, and "json" is a
      list with an object for each image.
  """
  good = [p for p in predictions if not p.error]
  if form == "json":
    rows = [
      {"path": p.name, "classes": [{"name": n, "probability": x} for n, x in p.classes]}
      for p in good
    ]
    yield json.dumps(rows, indent=2, allow_nan=False) + "\n"
  elif form == "csv":
    yield text.csv_line(("path", "rank", "class", "probability"))
    for p in good:
      for rank, (name, probability) in enumerate(p.classes, start=1):
        yield text.csv_line((p.name, rank, name, probability))
  else:
    for p in good:
      classes = ", ".join(f"{name} {x:.1%}" for name, x in p.classes)
      yield printable(f"{p.name}: {classes}") + "\n"
