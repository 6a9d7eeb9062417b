"""Features of images: the model's own representation, or the tokens of its last blocks."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from vit_jax.data.batches import normalize
from vit_jax.models import Network
from vit_jax.process import errors


def check(module: Network, layers: int):
  """Checks that a model has as many blocks; 0 and 1 suit every model.

  Raises:
    ValueError: it has not.
  """
  if layers <= 1:
    return
  if reason := module.why_no_layers():
    raise ValueError(f"{reason}, so only its last output gives features; give layers=1.")
  if layers > module.depth:
    raise ValueError(f"the model has {module.depth} blocks, so there are no last {layers}.")


def representation(features: dict[str, jax.Array], name: str) -> jax.Array:
  """Of a module's features, (B, D) float32: the "pre_logits", or the mean of the "patches"."""
  found = jnp.float32(features[name])
  if name == "patches":
    return found.mean(axis=1)
  return found


def check_finite(features: np.ndarray):
  """Checks the features (N, ...) of N images.

  Raises:
    NotFinite: those of some images are not finite.
  """
  finite = np.isfinite(features).all(axis=tuple(range(1, features.ndim)))
  errors.check_finite((~finite).sum(), len(features), "the features")


def has_class_token(module: Network) -> bool:
  """Whether a class token stands for the image in `seen`."""
  return not module.why_no_layers() and module.has_class_token()


@functools.partial(jax.jit, static_argnums=(0, 3))
def seen(module: Network, params: dict, pixels: jax.Array, layers: int) -> dict[str, jax.Array]:
  """The features of images, float32.

  The output of a block is put through the final LayerNorm, as that of the last block is. Output n
  is that of the model that ends after block n, so the outputs share their computation: XLA computes
  equal operations once.

  Args:
    module, params: the model.
    pixels: (B, S, S, 3) uint8.
    layers: L, how many of the last blocks; 1 for a model without blocks.

  Returns:
    "pre_logits" (B, D); "patches" (B, L, N, D), the last block last; "mean" (B, D), the mean of the
    last patches; and "image" (B, L, D), the class token, or for a model without one the mean of the
    patches. A norm behind the pooling (final_norm="pooled") is applied to "mean" and "image", and
    then "image" is the mean; behind a neck it is not.
  """
  images = normalize(pixels, module.dtype)
  features = module.apply({"params": params}, images, train=False, method="features")
  if module.why_no_layers():
    patches = jnp.float32(features["patches"])[:, None]
    image = patches.mean(axis=2)
    mean = image[:, -1]
  else:
    models = [module.first(blocks) for blocks in range(module.depth - layers + 1, module.depth + 1)]
    tokens = [model.apply({"params": params}, images, method=_encoded) for model in models]
    patches = jnp.float32(jnp.stack([module.patches(x) for x in tokens], axis=1))
    image = patches.mean(axis=2)
    mean = module.apply({"params": params}, image[:, -1], method="normed")
    if has_class_token(module):
      image = jnp.float32(jnp.stack([x[:, 0] for x in tokens], axis=1))
    image = module.apply({"params": params}, image, method="normed")
  of_images = {"pre_logits": features["pre_logits"], "image": image, "mean": mean}
  return {name: jnp.float32(x) for name, x in of_images.items()} | {"patches": patches}


def _encoded(module, images: jax.Array) -> jax.Array:
  """The tokens after all blocks and the final LayerNorm, (B, tokens, D)."""
  grid = module.grid(*images.shape[1:3])
  x = module.add_positions(module.embed(images), grid, train=False)
  return module.encode(x, grid, train=False)
