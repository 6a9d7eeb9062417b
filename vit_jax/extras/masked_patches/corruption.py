"""Which patch embeddings masked patch prediction corrupts, and how (Appendix B.1.2)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

# Kinds of corruption: 80% of the patches are masked, 10% replaced, 10% kept.
KINDS = ("masked", "replaced", "kept")
MASKED = 0
REPLACED = 1
KEPT = 2
REPLACE_FROM = 0.8
KEEP_FROM = 0.9

# Folded into the key of a step, beside the streams of dropout and MixUp.
_STREAM = 2**32 - 2


class Corruption(NamedTuple):
  """The corruption of images with N patches each, M of which are corrupted.

  Attributes:
    patches: (B, M) int32, the corrupted patches, all different, in random order.
    kinds: (B, M) int8, their kinds of corruption.
    sources: (B, N) int32, the patch whose embedding each patch gets, in most cases its own.
    masked: (B, N) bool, whether the mask embedding replaces the embedding of each patch.
  """

  patches: jax.Array
  kinds: jax.Array
  sources: jax.Array
  masked: jax.Array


def count(rate: float, patches: int) -> int:
  """Corrupted patches of an image: `rate` of its patches, rounded to the nearest, half to even."""
  return round(rate * patches)


def draw(key: jax.Array, *, places: jax.Array, patches: int, corrupted: int) -> Corruption:
  """Draws the corruption of images.

  The draws for an image depend only on the key and on the image's place.

  Args:
    key: of the step.
    places: (B,) whole numbers, the places of the images in the batch over all devices.
    patches: N, at least 2.
    corrupted: M.
  """
  stream = jax.random.fold_in(key, _STREAM)
  keys = jax.vmap(jax.random.fold_in, (None, 0))(stream, places)
  return jax.vmap(lambda key: _of_image(key, patches, corrupted))(keys)


def _of_image(key, patches: int, corrupted: int) -> Corruption:
  which, how, shift = jax.random.split(key, 3)
  chosen = jax.random.permutation(which, patches)[:corrupted]
  share = jax.random.uniform(how, (corrupted,))
  kinds = (share >= REPLACE_FROM).astype(jnp.int8) + (share >= KEEP_FROM).astype(jnp.int8)
  others = (chosen + jax.random.randint(shift, (corrupted,), 1, patches)) % patches
  here = chosen[:, None] == jnp.arange(patches)  # (M, N), whether draw m is for patch n
  masked = jnp.any(here & (kinds == MASKED)[:, None], axis=0)
  replaced = here & (kinds == REPLACED)[:, None]
  moved = jnp.sum(replaced * others[:, None], axis=0)
  sources = jnp.where(replaced.any(axis=0), moved, jnp.arange(patches))
  return Corruption(chosen, kinds, sources, masked)


def corrupt(x: jax.Array, corruption: Corruption, mask_embedding: jax.Array) -> jax.Array:
  """Corrupts patch embeddings: (B, N, D), with a mask embedding (D,) -> (B, N, D)."""
  x = rows(x, corruption.sources)
  return jnp.where(corruption.masked[..., None], mask_embedding.astype(x.dtype), x)


def rows(x: jax.Array, places: jax.Array) -> jax.Array:
  """Rows of x (B, N, D) at places (B, M) -> (B, M, D); integers must be below 2^24.

  This is a matmul with zeros and ones, which is exact and takes a thousandth of a model's time. On
  TPUs a gather is slow, and so is its gradient, a scatter; the compiler for v6e fails on a gather
  of integers.
  """
  dtype = x.dtype
  if not jnp.issubdtype(dtype, jnp.floating):
    dtype = jnp.float32
  select = jax.nn.one_hot(places, x.shape[1], dtype=dtype)
  taken = jnp.einsum("bmn,bnd->bmd", select, x.astype(dtype), precision="highest")
  return taken.astype(x.dtype)


def filled(x: jax.Array, places: jax.Array, new: jax.Array) -> jax.Array:
  """x (B, N, D) with the rows at places (B, M), all different, replaced by `new` (B, M, D)."""
  here = places[:, :, None] == jnp.arange(x.shape[1])  # (B, M, N)
  return jnp.where(here.any(axis=1)[..., None], rows(new, here.argmax(axis=1)), x)
