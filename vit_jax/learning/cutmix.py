"""CutMix, inside the compiled step: a rectangle of every image comes from another of the batch.

Source: Yun et al., "CutMix: Regularization Strategy to Train Strong Classifiers with Localizable
Features", 2019, Section 3.1 and Algorithm A1. One rectangle is drawn for a whole batch, as there.
"""

import jax
import jax.numpy as jnp

from vit_jax.learning import mixup

# Folded into the key of a step, as that of MixUp: for the rectangle, and for the choice of the two.
_STREAM, _CHOICE = 2**32 - 2, 2**32 - 3


def paired(batch: dict, key: jax.Array, alpha: float) -> dict:
  """The batch, in which every image has a rectangle of the image at the same place from the end.

  An image whose partner is broken (mask 0) stays as it is.

  Args:
    batch: image (B, S, S, 3) uint8, labels (B,), mask (B,).
    key: of the step.
    alpha: the share of an image itself is drawn from Beta(alpha, alpha), once for the whole batch;
      a part of the rectangle that is outside of the image raises it.

  Returns:
    The batch with partner_labels and share (B,), the part of its area that an image keeps.
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
  """Which pixels (S, S) of a square image lie in a random rectangle.

  Its height and width are sqrt(1 - share) of the image's, and its centre is at any pixel.
  """
  of_share, of_centre = jax.random.split(key)
  cut = side * jnp.sqrt(1 - jax.random.beta(of_share, alpha, alpha))
  half = cut.astype(jnp.int32) // 2
  centre = jax.random.randint(of_centre, (2,), 0, side)
  rows, columns = (
    (jnp.arange(side) >= at - half) & (jnp.arange(side) < at + half) for at in centre
  )
  return rows[:, None] & columns
