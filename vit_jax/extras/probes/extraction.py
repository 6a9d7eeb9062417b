"""The features of all images of a source, computed in one pass."""

import functools
from collections.abc import Callable, Mapping

import jax
import numpy as np

from vit_jax.config import sides
from vit_jax.data.images import BadImage, evaluate_image
from vit_jax.data.sources import Source
from vit_jax.inference import layers
from vit_jax.inference.model import LoadedModel
from vit_jax.inference.predict import MAX_PIXELS, computed
from vit_jax.storage import base

LAYERS = 4  # of the last blocks; fewer for a model with fewer blocks
MAX_BYTES = 2**34  # of the features of all patches, which are kept in memory


def layer_count(module) -> int:
  """The last blocks whose tokens are taken: 4, or all of a smaller model; 1 without blocks."""
  if module.why_no_layers():
    return 1
  return min(LAYERS, module.depth)


def unchanged(pixels: np.ndarray, row: int) -> np.ndarray:
  """The pixels."""
  del row
  return pixels


def features(
  model: LoadedModel,
  source: Source,
  *,
  patches: bool,
  batch_size: int,
  change: Callable[[np.ndarray, int], np.ndarray] = unchanged,
  done: Callable[[int], None],
) -> dict[str, np.ndarray]:
  """The features of N images, float32; of images that cannot be read, they are NaN.

  Args:
    model: for a known image size.
    source: the images, each prepared as the model's card says.
    patches: whether those of all patches are wanted.
    batch_size: images at a time, at most.
    change: (pixels, row of the image) -> other pixels of the same shape.
    done: called with the number of images after each batch.

  Returns:
    "pre_logits" (N, D), the representation that the weights were trained for; as in `layers.seen`,
    "image" (N, L, D), the class tokens of the last L blocks, or the mean of their patches, and
    "mean" (N, D), the mean of the last block's patches; and with `patches` "patches" (N, P, D),
    those of the last block.

  Raises:
    ValueError: the features of the patches take more than 16 GiB.
    OSError: the storage cannot be reached.
    NotFinite: features of images that can be read are not finite.
  """
  compute = functools.partial(arrays, model, model.params_on_device, patches=patches)
  result = empty(model, compute, len(source))
  read = functools.partial(prepared, source, model.card.preparation(), change)
  rows = computed(range(len(source)), read, compute, batch_size=batch_size, done=done)
  read_rows = []
  for row, found in enumerate(rows):
    if isinstance(found, str):
      for array in result.values():
        array[row] = np.nan
      continue
    read_rows.append(row)
    for name, array in found.items():
      result[name][row] = array
  layers.check_finite(result["image"][read_rows])
  return result


def readable(features: Mapping[str, np.ndarray]) -> np.ndarray:
  """The rows of `features` whose images could be read, ascending."""
  return np.flatnonzero(~np.isnan(features["pre_logits"]).any(axis=1))


def unreadable(model: LoadedModel, source: Source, features: Mapping) -> dict[int, str]:
  """Why images of `features` cannot be read, by row; "" of those that can be read by now."""
  rows = np.setdiff1d(np.arange(len(source)), readable(features)).tolist()
  found = {row: prepared(source, model.card.preparation(), unchanged, row) for row in rows}
  return {row: why if isinstance(why, str) else "" for row, why in found.items()}


def empty(model: LoadedModel, compute: Callable, images: int) -> dict[str, np.ndarray]:
  """Arrays for the results of `compute` for all images.

  Raises:
    ValueError: they take too much memory.
  """
  size = sides(model.card.image_size)
  shapes = jax.eval_shape(compute, jax.ShapeDtypeStruct((1, *size, model.card.channels), np.uint8))
  needed = 4 * images * sum(np.prod(shape.shape) for shape in shapes.values())
  if needed > MAX_BYTES:
    raise ValueError(
      f"the features of {images:,} images take {needed / 2**30:.1f} GiB, and at most "
      f"{MAX_BYTES / 2**30:.0f} GiB are kept in memory; take fewer images, or leave out the probes "
      "that need all patches."
    )
  return {name: np.empty((images, *s.shape[1:]), s.dtype) for name, s in shapes.items()}


def arrays(model: LoadedModel, params: dict, pixels, *, patches: bool) -> dict[str, jax.Array]:
  """The features of pixels (B, S, S, C) uint8, as `features` returns them."""
  seen = layers.seen(model.module, params, pixels, layer_count(model.module))
  last = seen["patches"][:, -1]
  result = {
    "pre_logits": layers.representation({**seen, "patches": last}, model.card.representation),
    "image": seen["image"],
    "mean": seen["mean"],
  }
  if patches:
    result["patches"] = last
  return result


def prepared(source: Source, how: dict, change: Callable, row: int) -> np.ndarray | str:
  """The pixels of an image as the model takes them; or why it cannot be read.

  Raises:
    OSError: the storage cannot be reached, or perhaps not now.
  """
  try:
    image = base.retried(lambda: source[row].image, lambda: source.name(row))
    return change(evaluate_image(image, max_pixels=MAX_PIXELS, **how), row)
  except BadImage as error:
    return str(error)
  except OSError as error:
    if isinstance(error, base.UnreachableError) or error.errno in base.MAY_PASS:
      raise
    return str(error)
