"""CutMix, inside the compiled step: a rectangle of every image comes from another of the batch.

Source: Yun et al., "CutMix: Regularization Strategy to Train Strong Classifiers with Localizable
Features", 2019, Section 3.1 and Algorithm A1. One rectangle is drawn for a whole batch, as there.
"""

import jax
import jax.numpy as jnp

from vit_jax.learning import mixup

# Folded into the key of a step, as in MixUp.
_STREAM = 2**32 - 2  # for the rectangle
_CHOICE = 2**32 - 3  # for the choice between MixUp and CutMix


def paired(batch: dict, key: jax.Array, alpha: float) -> dict:
  """The batch, with a rectangle of every image taken from its partner, as in `mixup.paired`.

  An image whose partner is broken (mask 0) stays as it is.

  Args:
    batch: image (B, S, S, 3) uint8, labels (B,), mask (B,).
    key: of the step.
    alpha: the share that an image keeps is drawn from Beta(alpha, alpha), once for the whole batch.
      A rectangle that is partly outside the image leaves a larger share.

  Returns:
    The batch with partner_labels and share (B,), the fraction of its area that an image keeps.
  """
  inside = rectangle(jax.random.fold_in(key, _STREAM), batch["image"].shape[1], alpha)
  partner = {name: jnp.flip(array, axis=0) for name, array in batch.items()}
  taken = (partner["mask"] > 0)[:, None, None] & inside
  return batch | dict(
    image=jnp.where(taken[..., None], partner["image"], batch["image"]),
    partner_labels=partner["labels"],
    share=1 - taken.mean(axis=(1, 2), dtype=jnp.float32),
  )


def either(batch: dict, key: jax.Array, *, mixup_alpha: float, cutmix_alpha: float) -> dict:
  """The batch after MixUp or CutMix, each for half of the steps by chance, as in timm.

  Arguments as for `mixup.paired` and `paired`; with one alpha at 0, the other is always done.
  """
  if not cutmix_alpha:
    return mixup.paired(batch, key, mixup_alpha)
  cut = paired(batch, key, cutmix_alpha)
  if not mixup_alpha:
    return cut
  blended = mixup.paired(batch, key, mixup_alpha)
  cut |= dict(partner_image=cut["image"])  # blended with itself
  choice = jax.random.bernoulli(jax.random.fold_in(key, _CHOICE))
  return {name: jnp.where(choice, cut[name], blended[name]) for name in blended}


def rectangle(key: jax.Array, side: int, alpha: float) -> jax.Array:
  """A mask (S, S) of the pixels in a random rectangle of a square image.

  Its sides are sqrt(1 - share) of the image's, and its centre is a random pixel.
  """
  of_share, of_centre = jax.random.split(key)
  cut = side * jnp.sqrt(1 - jax.random.beta(of_share, alpha, alpha))
  half = cut.astype(jnp.int32) // 2
  centre = jax.random.randint(of_centre, (2,), 0, side)

  def near(middle):
    return (jnp.arange(side) >= middle - half) & (jnp.arange(side) < middle + half)

  rows, columns = map(near, centre)
  return rows[:, None] & columns
