"""The linear probe of DINOv2 and DINOv3 (eval/linear.py): many classifiers trained at once.

Each is linear in the class token of the last block, or of the last four, with or without the mean
of the last block's patches. SGD with momentum 0.9 and no weight decay minimises the cross-entropy
over 12,500 batches of 128 images (10 epochs of 1,250 steps); 13 rates, times 128 / 256, fall to 0
by a cosine. Initial weights have a standard deviation of 0.01.

The protocol trains on random crops, and reports the best classifier on the images that are scored.
Here the features are of the central crop, and a held-out tenth of the training images, which is not
trained on, chooses.
"""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from vit_jax.extras.probes import scores
from vit_jax.extras.probes.batches import chunks, cosine
from vit_jax.extras.probes.fitted import Features, Fitted
from vit_jax.extras.probes.parts import held_out
from vit_jax.extras.probes.request import STEPS

RATES = (1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1)
BATCH = 128
PER_IMAGES = 256  # the rates are for batches of as many images
MOMENTUM = 0.9
DEVIATION = 0.01


class Kind(NamedTuple):
  """The input of a classifier.

  Attributes:
    blocks: how many of the last blocks.
    mean: whether the mean of the last block's patches is appended.
    token: what stands for the image in each block, in words.
  """

  blocks: int
  mean: bool
  token: str

  def in_words(self) -> str:
    """Such as "class token of 4 blocks and mean of the patches"."""
    words = f"{self.token} of the last block"
    if self.blocks > 1:
      words = f"{self.token} of {self.blocks} blocks"
    return words + " and mean of the patches" * self.mean


def kinds(features: Features, class_token: bool) -> tuple[Kind, ...]:
  """The inputs that are tried; without a class token the patches' mean takes its place."""
  depths = sorted({1, features["image"].shape[1]})
  if not class_token:
    return tuple(Kind(blocks, False, "mean of the patches") for blocks in depths)
  return tuple(Kind(blocks, mean, "class token") for blocks in depths for mean in (False, True))


def inputs(image: jax.Array, mean: jax.Array, kind: Kind) -> jax.Array:
  """The input of a classifier, (B, D), of features (B, L, D) and (B, D)."""
  chosen = image[:, -kind.blocks :].reshape(len(image), -1)
  if kind.mean:
    return jnp.concatenate([chosen, mean], axis=1)
  return chosen


def fit(
  train: Features,
  labels: np.ndarray,
  classes: int,
  seed: int,
  show: Callable[[int], Callable[[int], None]] = lambda total: lambda images: None,
  *,
  class_token: bool,
  steps: int = STEPS,
) -> Fitted:
  """Trains all classifiers and chooses one by its accuracy on the held-out tenth (`scores.best`).

  Args:
    train: features.
    labels: (N,) in [0, classes).
    classes: K.
    seed: of the held-out tenth, the initial weights and the order of images.
    show: as for `probe.fits`.
    class_token: whether the model has one.
    steps: of SGD.
  """
  rows, held = held_out(labels, seed)
  tried = kinds(train, class_token)
  data = (train["image"][rows], train["mean"][rows], labels[rows])
  weights = trained(data, tried, classes, seed, steps, show(steps * BATCH))
  found = []
  for kind in tried:
    x = np.asarray(inputs(train["image"][held], train["mean"][held], kind))
    for i, rate in enumerate(RATES):
      kernel, bias = (np.float64(array[i]) for array in weights[kind])
      logits = np.float64(x) @ kernel + bias
      found.append(((kind, rate, kernel, bias), logits))
  (kind, rate, kernel, bias), heat = scores.best(found, labels[held])
  predict = functools.partial(logits_of, kind, kernel, bias)
  chosen = f"rate {rate:g}, {kind.in_words()}"
  return Fitted(predict, logits=True, temperature=heat, chosen=chosen)


def logits_of(kind: Kind, kernel: np.ndarray, bias: np.ndarray, test: Features) -> np.ndarray:
  """The logits (N, K), float64."""
  return np.float64(inputs(test["image"], test["mean"], kind)) @ kernel + bias


def trained(
  data: Sequence[np.ndarray],
  tried: tuple[Kind, ...],
  classes: int,
  seed: int,
  steps: int,
  done: Callable[[int], None],
) -> dict[Kind, tuple[np.ndarray, np.ndarray]]:
  """The kernels (R, D, K) and biases (R, K) for each kind of input, after all steps."""
  image, mean, labels = data
  weights = {kind: initial(kind, image, classes, seed + i) for i, kind in enumerate(tried)}
  state = jax.device_put((weights, optimizer().init(weights)))
  first = 0
  for rows in chunks(len(labels), BATCH, steps, seed):
    factors = cosine(first, len(rows), steps)
    batches = jax.device_put((image[rows], mean[rows], labels[rows], factors))
    state = run(state, batches)
    jax.block_until_ready(state)
    done(rows.size)
    first += len(rows)
  weights, _ = jax.device_get(state)
  return weights


def initial(kind: Kind, image: np.ndarray, classes: int, seed: int):
  """The initial kernels, the same for all rates, and biases for one kind of input."""
  width = (kind.blocks + kind.mean) * image.shape[-1]
  kernel = DEVIATION * np.random.default_rng(seed).standard_normal((width, classes))
  kernels = np.broadcast_to(np.float32(kernel), (len(RATES), width, classes))
  return kernels, np.zeros((len(RATES), classes), np.float32)


def optimizer() -> optax.GradientTransformation:
  """Momentum; the rates follow in `run`."""
  return optax.trace(decay=MOMENTUM)


@functools.partial(jax.jit, donate_argnums=0)
def run(state, batches):
  """The state after some steps; the batches are stacked along a first axis."""
  scaled = -np.float32(RATES) * BATCH / PER_IMAGES

  def step(state, batch):
    weights, momentum = state
    image, mean, labels, factor = batch
    gradient = jax.grad(loss)(weights, image, mean, labels)
    updates, momentum = optimizer().update(gradient, momentum)
    rates = scaled * factor
    updates = {
      kind: (kernel * rates[:, None, None], bias * rates[:, None])
      for kind, (kernel, bias) in updates.items()
    }
    return (optax.apply_updates(weights, updates), momentum), None

  return jax.lax.scan(step, state, batches)[0]


def loss(weights, image: jax.Array, mean: jax.Array, labels: jax.Array) -> jax.Array:
  """The sum over all classifiers of the mean cross-entropy of a batch."""
  total = 0.0
  for kind, (kernel, bias) in weights.items():
    x = inputs(image, mean, kind)
    logits = jnp.einsum("bd,rdk->rbk", x, kernel, precision="highest") + bias[:, None]
    each = optax.softmax_cross_entropy_with_integer_labels(logits, labels[None])
    total += each.mean(axis=1).sum()
  return total
