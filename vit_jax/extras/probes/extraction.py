"""The features of all images of a source, computed in one pass."""

import functools
from collections.abc import Callable

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


def features(
  model: LoadedModel,
  source: Source,
  *,
  patches: bool,
  batch_size: int,
  change: Callable[[np.ndarray, int], np.ndarray] = lambda pixels, row: pixels,
  done: Callable[[int], None],
) -> dict[str, np.ndarray]:
  """The features of N images, float32.

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
    ValueError: an image cannot be read, or the features of the patches take more than 16 GiB.
    NotFinite: features are not finite.
  """
  compute = functools.partial(arrays, model, model.params_on_device, patches=patches)
  result = empty(model, compute, len(source))
  read = functools.partial(prepared, source, model.card.preparation(), change)
  rows = computed(range(len(source)), read, compute, batch_size=batch_size, done=done)
  for row, found in enumerate(rows):
    if isinstance(found, str):
      reason = found.rstrip(".")
      raise ValueError(f"{source.name(row)} cannot be read: {reason}; repair it or leave it out.")
    for name, array in found.items():
      result[name][row] = array
  layers.check_finite(result["image"])
  return result


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
  """The pixels of an image as the model takes them; or why it cannot be read."""
  try:
    image = base.retried(lambda: source[row].image, lambda: source.name(row))
    return change(evaluate_image(image, max_pixels=MAX_PIXELS, **how), row)
  except (BadImage, OSError) as error:
    return str(error)
