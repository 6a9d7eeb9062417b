"""Mean attention distance (Section 4.5, Figure 7 right; Appendix D.7, Figure 11)."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from vit_jax.config import Size, sides
from vit_jax.extras.inspection import attention
from vit_jax.models import Network


def mean_distances(
  module: Network, params: dict, images, *, on_image: Callable[[], None] = lambda: None
) -> np.ndarray:
  """The mean distance, in pixels, between a query and the patches it attends to, for each head.

  d = mean over images and patches q of sum_k a_qk |p_q - p_k| / sum_k a_qk, over patches k, where p
  are the centres of the patches. Other tokens are left out and the weights are renormalised. In
  hybrids, neighbouring tokens are one stride of the ResNet apart.

  Args:
    module, params: the model.
    images: (B, H, W, C), uint8 pixels or floats in [-1, 1]; the paper takes 128.
    on_image: called after each image.

  Returns:
    (depth, heads) float64. For axial models (2, depth, heads): along rows, then along columns. NaN
    for a head that gives all weight of a query, to the last bit of float32, to other tokens.

  Raises:
    ValueError: as `attention.attention_weights`.
  """
  images = attention.pixels(images, module.channels)
  total = 0.0
  attention.check_transparent(module)
  distances = Distances(module, module.grid(*images.shape[1:3]))
  for found in attention.stream(module, params, images, distances, on_image):
    total += found.astype(np.float64)
  directions = len(module.attention_grids(distances.grid))
  means = (total / len(images)).reshape(-1, directions, module.heads).swapaxes(0, 1)
  if directions == 1:
    return means[0]
  return means


@dataclasses.dataclass(frozen=True)
class Distances:
  """Computes the mean distance of each head for one image with this grid of patches."""

  module: Network
  grid: tuple[int, int]

  def __call__(self, seen: attention.Seen) -> jax.Array:
    """(layers, heads); in axial models the mean over rows or columns."""
    grids = self.module.attention_grids(self.grid)
    places = [centres(each.grid, self.module.stride()) for each in grids]
    distances = [mean_distance(x, places[i % len(places)]) for i, x in enumerate(seen.layers)]
    return jnp.stack([x.reshape(-1, self.module.heads).mean(axis=0) for x in distances])


def mean_distance(weights: jax.Array, places: jax.Array) -> jax.Array:
  """The mean distance of each head, from its attention weights.

  Args:
    weights: (..., heads, T, T): query, key.
    places: (N, 2), coordinates of the last N tokens in pixels; earlier tokens are left out.

  Returns:
    (..., heads).
  """
  first = weights.shape[-1] - len(places)
  weights = weights[..., first:, first:]
  apart = jnp.linalg.norm(places[:, None] - places[None], axis=-1)
  return ((weights * apart).sum(axis=-1) / weights.sum(axis=-1)).mean(axis=-1)


def centres(grid: tuple[int, int], stride: Size) -> np.ndarray:
  """The centres of all patches in raster order, (rows * columns, 2) float32, in pixels."""
  return (np.indices(grid).reshape(2, -1).T + 0.5).astype(np.float32) * sides(stride)
