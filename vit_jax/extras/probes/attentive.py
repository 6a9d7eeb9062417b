"""Attentive probes: a learned query attends to the patches (V-JEPA 2, 2025, Section 5).

The probe of V-JEPA 2 has four pre-norm blocks with 16 heads: three of self-attention, then one in
which a learned query attends to the tokens, without a projection of its output; a linear layer
follows. "cross_attention" has the last block alone, which costs far less. AdamW trains 20 epochs,
for 5 rates and 4 weight decays at once; rates fall to 0 by a cosine. Initial weights are normal,
those at the end of a branch smaller by its depth; the linear layer's are uniform, as PyTorch's.

The protocol trains on augmented images, and reports the best of the 20 on the images that are
scored. Here the features are of the central crop, and a held-out tenth of the training images,
which is not trained on, chooses.
"""

import functools
import itertools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import optax

from vit_jax.extras.probes import scores
from vit_jax.extras.probes.batches import chunks, cosine
from vit_jax.extras.probes.fitted import Features, Fitted
from vit_jax.extras.probes.parts import held_out
from vit_jax.models.layers import ACTIVATIONS

DEPTHS = {"attentive": 4, "cross_attention": 1}
HEADS = 16
MLP = 4  # times the width: the hidden size
EPOCHS = 20
BATCH = 16
RATES = (5e-3, 3e-3, 1e-3, 3e-4, 1e-4)
DECAYS = (0.01, 0.1, 0.4, 0.8)
SETTINGS = tuple(itertools.product(DECAYS, RATES))
DEVIATION = 0.02  # of initial weights
EPSILON = 1e-5  # of LayerNorm
TEST_ROWS = 64


def heads(width: int) -> int:
  """16, or the most below it that divide the width."""
  return max(count for count in range(1, HEADS + 1) if width % count == 0)


def fit(
  train: Features,
  labels: np.ndarray,
  classes: int,
  seed: int,
  show: Callable[[int], Callable[[int], None]] = lambda total: lambda images: None,
  *,
  depth: int,
) -> Fitted:
  """Trains all settings and chooses one by its accuracy on the held-out tenth (`scores.best`).

  Args:
    train: features, with "patches".
    labels: (N,) in [0, classes).
    classes: K.
    seed: of the held-out tenth, the initial weights and the order of images.
    show: as for `probe.fits`.
    depth: blocks, of which the last has the query.
  """
  rows, held = held_out(labels, seed)
  params = trained(train["patches"], labels, rows, classes, seed, depth, show)
  found = []
  for i, (decay, rate) in enumerate(SETTINGS):
    own = jax.tree.map(lambda array, i=i: array[i], params)
    logits = logits_of(own, {"patches": train["patches"][held]})
    found.append(((decay, rate, own), logits))
  (decay, rate, own), heat = scores.best(found, labels[held])
  chosen = f"rate {rate:g}, weight decay {decay:g}"
  predict = functools.partial(logits_of, own)
  return Fitted(predict, logits=True, temperature=heat, chosen=chosen)


def logits_of(params: dict, test: Features) -> np.ndarray:
  """The logits (N, K), float64."""
  patches = test["patches"]
  params = jax.device_put(params)
  parts = [
    np.asarray(compute(params, jax.device_put(patches[first : first + TEST_ROWS])))
    for first in range(0, len(patches), TEST_ROWS)
  ]
  return np.float64(np.concatenate(parts))


def trained(patches, labels, rows, classes: int, seed: int, depth: int, show):
  """The parameters of all settings, stacked along a first axis, after all epochs."""
  one = initial(patches.shape[-1], classes, depth, seed)
  params = jax.tree.map(lambda x: np.broadcast_to(x, (len(SETTINGS), *x.shape)), one)
  state = (jax.device_put(params), jax.jit(optimizer().init)(params))
  batch = min(BATCH, len(rows))
  steps = -(-len(rows) // batch) * EPOCHS
  done = show(steps * batch)
  first = 0
  for places in chunks(len(rows), batch, steps, seed):
    factors = cosine(first, len(places), steps)
    for place, factor in zip(places, factors, strict=True):
      chosen = rows[place]
      state = step(state, *jax.device_put((patches[chosen], labels[chosen], factor)))
      jax.block_until_ready(state)
      done(len(place))
    first += len(places)
  return jax.device_get(state[0])


def optimizer() -> optax.GradientTransformation:
  """Adam; rates and weight decay follow in `step`."""
  return optax.scale_by_adam()


@functools.partial(jax.jit, donate_argnums=0)
def step(state, patches: jax.Array, labels: jax.Array, factor: jax.Array):
  """The state after a step of AdamW of every setting."""
  params, moments = state
  gradient = jax.vmap(jax.grad(loss), in_axes=(0, None, None))(params, patches, labels)
  updates, moments = optimizer().update(gradient, moments)
  decays, rates = np.float32(SETTINGS).T

  def changed(param, update):
    shape = (-1, *[1] * (param.ndim - 1))
    rate = rates.reshape(shape) * factor
    return param - rate * (update + decays.reshape(shape) * param)

  return jax.tree.map(changed, params, updates), moments


def loss(params: dict, patches: jax.Array, labels: jax.Array) -> jax.Array:
  """The mean cross-entropy of a batch."""
  logits = compute(params, patches)
  return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def initial(width: int, classes: int, depth: int, seed: int) -> dict:
  """The initial parameters of one probe."""
  keys = jax.random.split(jax.random.key(seed), 10 * depth + 2)
  names = iter(keys)

  def dense(rows, columns, scale=1.0):
    kernel = scale * DEVIATION * jax.random.normal(next(names), (rows, columns))
    return {"kernel": kernel, "bias": jnp.zeros(columns)}

  def uniform(*shape):
    return jax.random.uniform(next(names), shape, minval=-1, maxval=1) / np.sqrt(width)

  def norm():
    return {"scale": jnp.ones(width), "bias": jnp.zeros(width)}

  def block(number):
    hidden = {"up": dense(width, MLP * width), "down": dense(MLP * width, width, smaller(number))}
    projections = {name: dense(width, width) for name in ("query", "key", "value")}
    return projections | hidden | {"before": norm(), "between": norm()}

  def smaller(number):
    return 1 / np.sqrt(2 * number)

  query = DEVIATION * jax.random.normal(next(names), (width,))
  inner = [block(i) | {"out": dense(width, width, smaller(i))} for i in range(1, depth)]
  blocks = [*inner, block(max(depth - 1, 1))]
  head = {"kernel": uniform(width, classes), "bias": uniform(classes)}
  return jax.device_get({"blocks": blocks, "query": query, "head": head})


@jax.jit
def compute(params: dict, patches: jax.Array) -> jax.Array:
  """The logits (B, K) of patches (B, N, D)."""
  with jax.default_matmul_precision("highest"):
    x = patches
    *inner, last = params["blocks"]
    for block in inner:
      x = x + attention(block, normalize(block["before"], x))
      x = x + mlp(block, x)
    y = params["query"] + pooled(last, params["query"], x)
    return affine(params["head"], y + mlp(last, y))


def attention(block: dict, x: jax.Array) -> jax.Array:
  """Self-attention of tokens (B, N, D)."""
  shape = (*x.shape[:-1], heads(x.shape[-1]), -1)
  query, key, value = (affine(block[name], x).reshape(shape) for name in ("query", "key", "value"))
  y = jax.nn.dot_product_attention(query, key, value)
  return affine(block["out"], y.reshape(x.shape))


def pooled(block: dict, query: jax.Array, x: jax.Array) -> jax.Array:
  """Attention of one query (D,) to the normalised tokens (B, N, D): (B, D).

  As there is one query, keys and values need not be computed for each token: q.(K x) = (K^T q).x,
  and a weighted mean of V x is V times that of x. Scale and shift of the LayerNorm move out of the
  sums in the same way, so all probes of one depth share the rest. What adds the same number to
  every logit, such as a bias of the keys, changes no weight.
  """
  count = heads(x.shape[-1])
  width = x.shape[-1] // count
  scale, shift = block["before"]["scale"], block["before"]["bias"]
  x = jax.nn.standardize(x, epsilon=EPSILON)
  q = affine(block["query"], query).reshape(count, width) / np.sqrt(width)
  key = block["key"]["kernel"].reshape(-1, count, width)
  weights = jax.nn.softmax(jnp.einsum("bnd,hd->bhn", x, scale * jnp.einsum("dhe,he->hd", key, q)))
  means = scale * jnp.einsum("bhn,bnd->bhd", weights, x) + shift
  value = block["value"]["kernel"].reshape(-1, count, width)
  return jnp.einsum("bhd,dhe->bhe", means, value).reshape(len(x), -1) + block["value"]["bias"]


def mlp(block: dict, x: jax.Array) -> jax.Array:
  """LayerNorm and two dense layers with exact GELU between: (..., D) -> (..., D)."""
  hidden = affine(block["up"], normalize(block["between"], x))
  return affine(block["down"], ACTIVATIONS["gelu"](hidden))


def affine(layer: dict, x: jax.Array) -> jax.Array:
  """x W + b."""
  return x @ layer["kernel"] + layer["bias"]


def normalize(norm: dict, x: jax.Array) -> jax.Array:
  """LayerNorm over the last axis."""
  return jax.nn.standardize(x, epsilon=EPSILON) * norm["scale"] + norm["bias"]
