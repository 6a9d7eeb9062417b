"""A linear segmentation probe: BatchNorm and a 1 x 1 convolution on the last block's patches.

After DINOv3's eval/segmentation: AdamW at 1e-3 with a warm-up of 1,500 of 40,000 steps on batches
of 16 crops, cross-entropy at the pixels of enlarged logits. Two things are simpler here: the crops
are the windows of `windows.py`, not random; and after the warm-up the rate falls to 0 by a cosine.
The logits of an image are the mean of those of its windows where these overlap. They are enlarged
(bilinear) to the size of a mask before they are scored, so every pixel counts once.
"""

import functools
from collections.abc import Callable, Sequence

import cv2
import jax
import jax.numpy as jnp
import numpy as np
import optax

from vit_jax.config import Size, sides
from vit_jax.extras.probes import windows
from vit_jax.extras.probes.batches import chunks
from vit_jax.extras.probes.masks import IGNORED
from vit_jax.extras.probes.request import SEGMENTATION_STEPS
from vit_jax.weights.card import Card

RATE = 1e-3
DECAY = 1e-3
WARMUP = 1500  # of SEGMENTATION_STEPS
BATCH = 16
DEVIATION = 0.01
EPSILON = 1e-5
KEPT = 0.9  # of the running mean and variance, in each step


def fit(
  patches: np.ndarray,
  masks: Sequence[np.ndarray],
  *,
  grid: tuple[int, int],
  classes: int,
  seed: int,
  steps: int,
  done: Callable[[int], None] = lambda images: None,
) -> dict[str, np.ndarray]:
  """Trains the probe.

  Args:
    patches: (N, P, D), the features of the patches.
    masks: (H, W) uint8 each, of one size; 255 does not count.
    grid: rows and columns of patches.
    classes: K.
    seed: of the initial weights and the order of images.
    steps: of AdamW.
    done: called with the number of images after each step.

  Returns:
    A linear map of features: "kernel" (D, K) and "bias" (K,), with the BatchNorm in it.
  """
  squares = np.stack(masks)
  batch = min(BATCH, len(masks))
  state = jax.device_put(initial(patches.shape[-1], classes, seed))
  schedule = optimizer(steps)
  moments = schedule.init(state["params"])
  for rows in chunks(len(masks), batch, steps, seed):
    for row in rows:
      data = jax.device_put((patches[row], squares[row]))
      state, moments = step(schedule, grid, state, moments, *data)
      jax.block_until_ready(state)
      done(len(row))
  return folded(jax.device_get(state))


def initial(width: int, classes: int, seed: int) -> dict:
  """The initial parameters, and the running statistics."""
  kernel = DEVIATION * np.random.default_rng(seed).standard_normal((width, classes))
  params = {
    "scale": np.ones(width, np.float32),
    "shift": np.zeros(width, np.float32),
    "kernel": np.float32(kernel),
    "bias": np.zeros(classes, np.float32),
  }
  return {"params": params, "mean": np.zeros(width, np.float32), "var": np.ones(width, np.float32)}


@functools.cache
def optimizer(steps: int) -> optax.GradientTransformation:
  """AdamW with its schedule; for fewer steps the warm-up is as large a share."""
  warmup = max(1, steps * WARMUP // SEGMENTATION_STEPS)
  rate = optax.warmup_cosine_decay_schedule(0.0, RATE, warmup, max(steps, warmup + 1))
  return optax.adamw(rate, weight_decay=DECAY)


@functools.partial(jax.jit, static_argnums=(0, 1))
def step(schedule, grid, state, moments, patches: jax.Array, masks: jax.Array):
  """The state and the moments after a step."""

  def loss(params):
    mean = patches.mean(axis=(0, 1))
    var = patches.var(axis=(0, 1))
    logits = linear(params, patches, mean, var)
    large = enlarged(logits, grid, masks.shape[1:])
    counts = masks != IGNORED
    labels = jnp.where(counts, masks, 0).astype(jnp.int32)
    each = optax.softmax_cross_entropy_with_integer_labels(large, labels)
    return jnp.sum(each * counts) / jnp.maximum(counts.sum(), 1), (mean, var)

  gradient, (mean, var) = jax.grad(loss, has_aux=True)(state["params"])
  updates, moments = schedule.update(gradient, moments, state["params"])
  count = patches.shape[0] * patches.shape[1]
  unbiased = var * count / max(count - 1, 1)
  state = {
    "params": optax.apply_updates(state["params"], updates),
    "mean": KEPT * state["mean"] + (1 - KEPT) * mean,
    "var": KEPT * state["var"] + (1 - KEPT) * unbiased,
  }
  return state, moments


def linear(params: dict, patches: jax.Array, mean: jax.Array, var: jax.Array) -> jax.Array:
  """BatchNorm with these statistics, and the convolution: (B, P, D) -> (B, P, K)."""
  x = (patches - mean) * jax.lax.rsqrt(var + EPSILON) * params["scale"] + params["shift"]
  return jnp.matmul(x, params["kernel"], precision="highest") + params["bias"]


def enlarged(logits: jax.Array, grid: tuple[int, int], size: tuple[int, int]) -> jax.Array:
  """Logits (B, P, K) of patches as (B, *size, K), bilinear between the centres of patches."""
  maps = logits.reshape(len(logits), *grid, -1)
  return jax.image.resize(maps, (len(maps), *size, maps.shape[-1]), "bilinear", antialias=False)


def folded(state: dict) -> dict[str, np.ndarray]:
  """The convolution with the BatchNorm's running statistics in it, float64."""
  params = {name: np.float64(array) for name, array in state["params"].items()}
  factor = params["scale"] / np.sqrt(np.float64(state["var"]) + EPSILON)
  shift = params["shift"] - np.float64(state["mean"]) * factor
  kernel = params["kernel"]
  return {"kernel": factor[:, None] * kernel, "bias": shift @ kernel + params["bias"]}


def confusion(
  probe: dict[str, np.ndarray],
  patches: np.ndarray,
  masks: Sequence[np.ndarray],
  grid: tuple[int, int],
  card: Card,
) -> np.ndarray:
  """The number of pixels of each class (rows) with each prediction (columns), (K, K) int64.

  Args:
    probe: the linear map.
    patches: (N, P, D), of all windows of the images, as `windows.Windows` has them.
    masks: (H, W) uint8 of each image; 255 does not count.
    grid: rows and columns of patches in a window.
    card: as for `windows.Windows`.
  """
  classes = len(probe["bias"])
  result = np.zeros((classes, classes), np.int64)
  rest = iter(patches)
  for mask in masks:
    shape = windows.resized_shape(mask.shape, card)
    places = windows.places(shape, card.image_size)
    features = np.stack([next(rest) for _ in places])
    logits = np.float32(features @ probe["kernel"] + probe["bias"])
    maps = logits.reshape(len(places), *grid, classes)
    found = predicted(joined(maps, places, shape, card.image_size), mask.shape)
    counts = mask != IGNORED
    cells = mask[counts].astype(np.int64) * classes + found[counts]
    result += np.bincount(cells, minlength=classes**2).reshape(classes, classes)
  return result


def joined(
  maps: np.ndarray, places: Sequence[tuple[int, int]], shape: tuple[int, int], size: Size
) -> np.ndarray:
  """The logits of an image, (*shape, K): the mean of those of the windows at a pixel.

  Args:
    maps: (windows, rows, columns, K), the logits of patches.
    places: the first row and column of each window.
    shape: rows and columns of the image.
    size: of a window, pixels.
  """
  rows, columns = sides(size)
  total = np.zeros((*shape, maps.shape[-1]), np.float32)
  count = np.zeros((*shape, 1), np.float32)
  for window, (top, left) in zip(maps, places, strict=True):
    part = np.s_[top : top + rows, left : left + columns]
    total[part] += cv2_enlarged(window, (rows, columns))
    count[part] += 1
  return total / count


def predicted(logits: np.ndarray, size: tuple[int, int]) -> np.ndarray:
  """The class of the largest logit at each pixel, `size` uint8, of logits (rows, columns, K).

  Photographs may have so many pixels that only the logits of one class fit in memory at a time.
  """
  result = np.zeros(size, np.uint8)
  largest = np.full(size, -np.inf, np.float32)
  for kind in range(logits.shape[-1]):
    large = one_enlarged(logits[..., kind], size)
    result[large > largest] = kind
    np.maximum(largest, large, out=largest)
  return result


def cv2_enlarged(maps: np.ndarray, size: tuple[int, int]) -> np.ndarray:
  """Maps (rows, columns, K) resized to (*size, K), as `enlarged`."""
  return np.stack([one_enlarged(maps[..., i], size) for i in range(maps.shape[-1])], axis=-1)


def one_enlarged(one: np.ndarray, size: tuple[int, int]) -> np.ndarray:
  """A map (rows, columns) resized to `size`, as `enlarged`."""
  rows, columns = size
  return cv2.resize(one, (columns, rows), interpolation=cv2.INTER_LINEAR)


def scores(cells: np.ndarray) -> dict[str, float]:
  """The mean intersection over union, and the accuracy of pixels, of a confusion matrix.

  The mean is over the classes that are a label or a prediction of some pixel.
  """
  hits = np.diag(cells)
  union = cells.sum(axis=0) + cells.sum(axis=1) - hits
  there = union > 0
  return {
    "accuracy": float(hits.sum() / cells.sum()),
    "miou": float(np.mean(hits[there] / union[there])),
  }
