"""Maps of attention over the image: Attention Rollout and single heads (Figures 6 and 14).

Source: Abnar and Zuidema, "Quantifying Attention Flow in Transformers", 2020.
"""

import dataclasses
from collections.abc import Callable, Iterable

import jax
import jax.numpy as jnp
import numpy as np

from vit_jax.extras.inspection import attention
from vit_jax.extras.inspection.attention import Seen
from vit_jax.models import Network

MapsAndLogits = tuple[np.ndarray, np.ndarray]


def rollout(
  module: Network, params: dict, images, *, on_image: Callable[[], None] = lambda: None
) -> MapsAndLogits:
  """Attention Rollout from the output to the patches (Appendix D.8, Figures 6 and 14).

  Let A_l be the attention of layer l averaged over its heads, and M_l = (I + A_l) / 2 with rows
  scaled to sum 1. The map is the output's row of M_L ... M_2 M_1: the row of the class token; with
  pool="gap" the mean of the patches' rows; with pool="map" the pooling's weights times the product.

  Args:
    module, params: the model.
    images: (B, H, W, 3), uint8 pixels or floats in [-1, 1].
    on_image: called after each image.

  Returns:
    Maps (B, rows, columns) and logits (B, num_classes), float32. A map sums to at most 1: the rest
    belongs to the tokens before the patches.

  Raises:
    ValueError: the model has no such maps, or as `attention.attention_weights`.
  """
  _check(module)
  return _maps(module, params, images, Rollout(module), on_image)


def raw(
  module: Network,
  params: dict,
  images,
  *,
  layer: int,
  head: int,
  on_image: Callable[[], None] = lambda: None,
) -> MapsAndLogits:
  """The attention of one head: from the class token to the patches, or the mean of all patches.

  Args:
    module, params, images, on_image: as in `rollout`.
    layer, head: counted from 0.

  Returns:
    As `rollout`.

  Raises:
    ValueError: there is no such layer or head, or as `rollout`.
  """
  _check(module)
  if not (0 <= layer < module.depth and 0 <= head < module.heads):
    raise ValueError(
      f"there is no layer {layer} with a head {head}: layers are 0 to {module.depth - 1}, heads 0 "
      f"to {module.heads - 1}."
    )
  return _maps(module, params, images, OfHead(module, layer, head), on_image)


@dataclasses.dataclass(frozen=True)
class Rollout:
  """Computes the map of Attention Rollout, and the logits."""

  module: Network

  def __call__(self, seen: Seen) -> tuple[jax.Array, jax.Array]:
    """(B, N), the weight of each token, and (B, num_classes)."""
    return rolled(_output(seen, self.module), reversed(seen.layers)), seen.logits


@dataclasses.dataclass(frozen=True)
class OfHead:
  """Computes the map of one head, and the logits."""

  module: Network
  layer: int
  head: int

  def __call__(self, seen: Seen) -> tuple[jax.Array, jax.Array]:
    """As `Rollout`."""
    weights = seen.layers[self.layer][:, self.head]
    return weights[:, self.module.read_tokens()].mean(axis=1), seen.logits


def mixed(weights: jax.Array) -> jax.Array:
  """M = (I + mean over heads of A) / 2, rows scaled to sum 1: (B, heads, N, N) -> (B, N, N)."""
  both = 0.5 * jnp.eye(weights.shape[-1]) + 0.5 * weights.mean(axis=1)
  return both / both.sum(axis=-1, keepdims=True)


def rolled(row: jax.Array, layers: Iterable[jax.Array]) -> jax.Array:
  """The product row M_L ... M_1.

  Args:
    row: (B, N), the weight of each token of the last layer in the output.
    layers: attention weights (B, heads, N, N), the last layer first.
  """
  for weights in layers:
    row = jnp.einsum("bq,bqk->bk", row, mixed(weights), precision="highest")
  return row


def _check(module: Network):
  attention.check_transparent(module)
  if reason := module.why_no_map():
    raise ValueError(reason)


def _output(seen: Seen, module: Network) -> jax.Array:
  """(B, N): the weight of each token of the last layer in the output."""
  batch, _, tokens, _ = seen.layers[0].shape
  row = jnp.zeros((batch, tokens))
  if seen.pooling is not None:
    pooled = seen.pooling.mean(axis=1)[:, 0]  # the last tokens
    return row.at[:, tokens - pooled.shape[1] :].set(pooled)
  read = module.read_tokens()
  return row.at[:, read].set(1 / row[:, read].shape[1])


def _maps(module, params, images, of_seen, on_image) -> MapsAndLogits:
  """The maps of all images, by `Rollout` or `OfHead` without the other tokens, and the logits."""
  rows, columns = module.grid(*np.shape(images)[1:3])
  maps = []
  logits = []
  for weights, logits_of_image in attention.stream(module, params, images, of_seen, on_image):
    maps.append(weights[:, -rows * columns :].reshape(-1, rows, columns))
    logits.append(logits_of_image)
  return np.concatenate(maps), np.concatenate(logits).astype(np.float32)
