"""Class probabilities and features of images: files, Pillow images or arrays."""

import collections
import concurrent.futures
import dataclasses
import functools
import itertools
import json
import logging
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image

from vit_jax.config import ConfigError, Data, sides
from vit_jax.data import image_files, pillow
from vit_jax.data.batches import normalize
from vit_jax.data.images import RGBA, BadImage, evaluate_image
from vit_jax.inference import layers as blocks
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
    images: paths of files, their bytes, Pillow images, or uint8 pixels (H, W) or (H, W, C).
    top: number of classes for each image.
    batch_size: images at a time.
    max_pixels: larger images are not read.
    done: called with the number of images after each batch.

  Raises:
    ValueError: the weights have no head of classes.
  """
  if not model.classifies:
    raise ValueError(
      f"these weights {model.card.no_classes()}, so they cannot name the classes of images; "
      "fine-tune them first."
    )
  names = model.class_names

  def most_probable(pixels):
    logits, _ = _run(model.module, model.params_on_device, pixels)
    best = jax.lax.top_k(model.probabilities(logits), min(top, model.module.num_classes))
    return *best, jnp.isfinite(logits).all(axis=-1)

  options = dict(batch_size=batch_size, max_pixels=max_pixels, done=done)
  for name, output in named(model.card, most_probable, images, **options):
    if isinstance(output, str):
      yield Prediction(name, (), error=output)
    elif not output[-1]:
      yield Prediction(name, (), error=NOT_FINITE)
    else:
      ranked = zip(*output[:-1], strict=True)
      yield Prediction(name, tuple((names[i], float(p)) for p, i in ranked))


def features(
  model,
  images: Iterable,
  *,
  layers: int = 0,
  patches: bool = False,
  batch_size: int,
  done: Callable[[int], None] = lambda images: None,
) -> np.ndarray:
  """The features of images, (N, ...) float32, as `LoadedModel.features` describes them.

  Args:
    model, images, batch_size, done: as for `predict`.
    layers, patches: as for `LoadedModel.features`.

  Raises:
    ValueError: images cannot be read (which are named), features are not finite, or the model has
      not so many blocks.
  """
  rows, bad = [], []
  options = dict(layers=layers, patches=patches, batch_size=batch_size, done=done)
  for name, output in each_features(model, images, **options):
    if isinstance(output, str):
      bad.append(f"{name} cannot be read: {output}")
    else:
      rows.append(output)
  if bad:
    raise ValueError("\n".join(bad))
  if not rows:
    return np.zeros((0, *feature_shape(model, layers, patches)), np.float32)
  result = np.stack(rows)
  blocks.check_finite(result)
  return result


def feature_shape(model, layers: int, patches: bool) -> tuple[int, ...]:
  """The shape of the features of one image; arguments as for `features`."""
  size = sides(model.card.image_size)
  pixels = jax.ShapeDtypeStruct((1, *size, model.card.channels), np.uint8)
  compute = functools.partial(feature_arrays, model, model.params, layers=layers, patches=patches)
  return jax.eval_shape(compute, pixels).shape[1:]


def each_features(
  model,
  images: Iterable,
  *,
  layers: int = 0,
  patches: bool = False,
  batch_size: int,
  max_pixels: int = MAX_PIXELS,
  done: Callable[[int], None] = lambda images: None,
) -> Iterator[tuple[str, np.ndarray | str]]:
  """Yields (name, features of an image), or (name, why it cannot be read); keeps one batch.

  Args:
    model, images, batch_size, max_pixels, done: as for `predict`.
    layers, patches: as for `LoadedModel.features`.

  Raises:
    ValueError: the model has not so many blocks.
  """
  blocks.check(model.module, layers)
  params = model.params_on_device
  compute = functools.partial(feature_arrays, model, params, layers=layers, patches=patches)
  options = dict(batch_size=batch_size, max_pixels=max_pixels, done=done)
  yield from named(model.card, compute, images, **options)


def feature_arrays(
  model, params: dict, pixels: np.ndarray, *, layers: int, patches: bool
) -> jax.Array:
  """The features of pixels (N, S, S, C) uint8; arguments as for `LoadedModel.features`."""
  seen = blocks.seen(model.module, params, pixels, max(layers, 1))
  if patches and layers:
    return seen["patches"]
  if patches:
    return seen["patches"][:, -1]
  if layers:
    return seen["image"]
  last = {**seen, "patches": seen["patches"][:, -1]}
  return blocks.representation(last, model.card.representation)


def named(
  card: Card,
  compute: Callable[[np.ndarray], object],
  images: Iterable,
  *,
  batch_size: int,
  max_pixels: int,
  done: Callable[[int], None],
) -> Iterator[tuple[str, object]]:
  """Yields (name, what `compute` gives for an image), or (name, why it cannot be read); in order.

  Args:
    card: how images are prepared.
    compute: as for `computed`.
    images, batch_size, max_pixels, done: as for `predict`. Pillow images are read here, one after
      the other: two threads cannot read one image, and all frames of a file are the same object.
      So may be all arrays of a generator.
  """
  names = collections.deque()

  def begun():
    for place, image in enumerate(images, start=1):
      names.append(name_of(image, place))
      yield in_memory(image, transparency=card.channels == RGBA)

  read = functools.partial(read_image, max_pixels=max_pixels, **card.preparation())
  for output in computed(begun(), read, compute, batch_size=batch_size, done=done):
    yield names.popleft(), output


def computed(
  items: Iterable,
  read: Callable[[object], np.ndarray | str],
  compute: Callable[[np.ndarray], object],
  *,
  batch_size: int,
  done: Callable[[int], None],
) -> Iterator[object]:
  """Yields what `compute` gives for each item, or why it cannot be read; in order.

  Args:
    items: what `read` reads.
    read: an item -> pixels (S, S, C) uint8, or why there are none.
    compute: pixels (batch, S, S, C) -> tree of arrays (batch, ...); always called with batches of
      one size, so that it is compiled once.
    batch_size: items at a time, at most.
    done: called with the number of items after each batch.
  """
  size = 0
  for batch in decoded(items, read, batch_size):
    size = size or len(batch)  # the first one is the largest
    good = [image for image in batch if isinstance(image, np.ndarray)]
    values = None
    if good:
      blank = [np.zeros_like(good[0])] * (size - len(good))
      values = jax.device_get(compute(np.stack(good + blank)))
    done(len(batch))
    rows = (jax.tree.map(lambda x, row=row: x[row], values) for row in range(len(good)))
    for image in batch:
      if isinstance(image, str):
        yield image
      else:
        yield next(rows)


@functools.partial(jax.jit, static_argnums=0)
def _run(module, params, pixels):
  """Logits and features of pixels (N, H, W, C) uint8; compiled once for each module and size."""
  return module.apply({"params": params}, normalize(pixels, module.dtype), train=False)


def name_of(image, place: int) -> str:
  """The path of a file; for another image, its place among the images."""
  if isinstance(image, (str, os.PathLike)):
    return str(image)
  return f"image {place}"


def in_memory(image, *, transparency: bool = False):
  """What stays as it is until the image is read: others may be changed for the next image.

  Of a Pillow image its pixels, or the BadImage that says why there are none; a copy of an array;
  others as given.
  """
  if isinstance(image, np.ndarray):
    return image.copy()
  if not isinstance(image, Image.Image):
    return image
  try:
    return pillow.of_opened(image, transparency=transparency)
  except BadImage as error:
    return error


def read_image(image, **preparation) -> np.ndarray | str:
  """An image prepared as in an evaluation, (S, S, C) uint8; or why it cannot be read.

  Args:
    image: a result of `in_memory`: the path of a file, its bytes, uint8 pixels (H, W) or (H, W, C),
      or the reason why there are none.
    **preparation: the other arguments of `evaluate_image`.
  """
  if isinstance(image, BadImage):
    return str(image)
  try:
    return evaluate_image(encoded_or_pixels(image), **preparation)
  except (BadImage, ConfigError, OSError) as error:
    return str(error)


def encoded_or_pixels(image) -> bytes | np.ndarray:
  """The bytes of a file, or the pixels of an array.

  Raises:
    BadImage: it is no image, or has pixels other than uint8.
    ConfigError: the path is one that `storage.paths.local_path` refuses.
    OSError: the file cannot be read.
  """
  if isinstance(image, (str, os.PathLike)):
    path = pathlib.Path(image)
    if not files.exists(path):  # a file may be called ~a.png
      path = local_path(image)
    return files.read_bytes(path, most=image_files.MAX_BYTES)
  if isinstance(image, bytes):
    return image
  if isinstance(image, jax.Array):
    image = np.asarray(image)
  if isinstance(image, np.ndarray) and image.dtype == np.uint8:
    return image
  kind = type(image).__name__
  if isinstance(image, np.ndarray):
    kind = f"an array of {image.dtype}"
  raise BadImage(f"it is {kind}; give a path, bytes, a Pillow image or an array of uint8 pixels.")


def decoded(images: Iterable, read: Callable, batch_size: int) -> Iterator[list]:
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
