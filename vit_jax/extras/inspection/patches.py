"""The features of patches as colours: three principal components as red, green and blue.

Sources: Oquab et al., "DINOv2", 2023, Figure 1, where images share the components, and the first
component also separates the background; Simeoni et al., "DINOv3", 2025, whose pictures show the
first three components of all patches, as here.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from vit_jax.data.batches import normalize
from vit_jax.extras.inspection import attention
from vit_jax.extras.inspection.principal import principal_components
from vit_jax.models import Network

CHANNELS = 3
DARK = 0.01  # quantile of a component that becomes 0
BRIGHT = 0.99  # quantile that becomes 1
LEAST_SPREAD = 1e-6  # of the widest component; a narrower one is noise and becomes grey
CAPTION = (
  "Red, green and blue are the first three principal components, each from its "
  f"{DARK:.0%} to its {BRIGHT:.0%} quantile."
)


class PatchColours(NamedTuple):
  """Colours of patches.

  Attributes:
    colours: (B, rows, columns, 3) float32 from 0 to 1.
    variance: (3,) float64, the share of the features' variance along each component, descending.
  """

  colours: np.ndarray
  variance: np.ndarray


def patch_features(
  module: Network, params: dict, images, *, on_image: Callable[[], None] = lambda: None
) -> np.ndarray:
  """The model's output at each patch, after the last normalisation.

  Args:
    module: any model.
    params: its parameters; blocks may be stacked for scan.
    images: (B, H, W, C), uint8 pixels or floats in [-1, 1].
    on_image: called after each image.

  Returns:
    (B, rows, columns, D) float32.

  Raises:
    ValueError: the images do not suit the model, or a feature is not finite.
  """
  images = attention.pixels(images, module.channels)
  grid = module.grid(*images.shape[1:3])
  module = attention.handing_out(module)
  params = attention.on_device(params)
  features = []
  for i in range(len(images)):
    with jax.default_matmul_precision("highest"), attention.of_parameters(images):
      features.append(jax.device_get(_patches(module, params, images[i : i + 1])))
    on_image()
  features = np.concatenate(features)
  if not np.isfinite(features).all():
    raise ValueError("the features of some patches are not finite numbers.")
  return features.reshape(len(images), *grid, -1)


def patch_colours(features: np.ndarray) -> PatchColours:
  """Features as colours, by components that all images share: like features, like colours.

  Each of the three components is scaled from 0 to 1 between two of its quantiles, 1% and 99%, so
  that a few outlying patches do not leave the others grey.

  Args:
    features: (B, rows, columns, D), as of `patch_features`.

  Raises:
    ValueError: there are less than four patches or three features, or all patches are equal.
  """
  samples = features.reshape(-1, features.shape[-1]).astype(np.float64)
  count, width = samples.shape
  if count <= CHANNELS or width < CHANNELS:
    raise ValueError(
      f"colours need at least {CHANNELS + 1} patches with {CHANNELS} features each; there are "
      f"{count} with {width} each."
    )
  if not np.ptp(samples, axis=0).any():
    raise ValueError("all patches have the same features, so there is nothing to colour.")
  vectors, variance = principal_components(samples, CHANNELS)
  scores = (samples - samples.mean(axis=0)) @ vectors.T
  colours = between_quantiles(scores).astype(np.float32)
  return PatchColours(colours.reshape(*features.shape[:-1], CHANNELS), variance)


def between_quantiles(scores: np.ndarray) -> np.ndarray:
  """Each column of (N, K) from 0, its quantile `DARK` or less, to 1, `BRIGHT` or more."""
  low, high = np.quantile(scores, (DARK, BRIGHT), axis=0)
  spread = np.maximum(high - low, LEAST_SPREAD * (high - low).max())
  return np.clip(0.5 + (scores - (low + high) / 2) / spread, 0, 1)


@functools.partial(jax.jit, static_argnums=0)
def _patches(module, params, images):
  """The output at the patches, (B, N, D) float32."""
  if images.dtype == jnp.uint8:
    images = normalize(images, module.dtype)
  features = module.apply({"params": params}, images, train=False, method="features")
  return features["patches"].astype(jnp.float32)
