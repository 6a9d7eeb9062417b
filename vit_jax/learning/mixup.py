"""MixUp, inside the compiled step: blends every image and its target with another of the batch.

Source: Zhang et al., "mixup: Beyond Empirical Risk Minimization", 2018, equation 1. One share is
drawn for a whole batch, as in Kolesnikov et al., "Big Transfer (BiT)", 2020.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

# Folded into the key of a step. Dropout uses the key itself, or folds in the number of a part.
_STREAM = 2**32 - 1


def paired(batch: dict, key: jax.Array, alpha: float) -> dict:
  """The batch with a partner for every example: the example at the same place in reverse order.

  The partners are chosen before accumulation or devices divide the batch, and the share depends
  only on the key, so neither depends on the division. If the partner of an example is broken
  (mask 0), the share is 1, so that a broken image never affects another example.

  Args:
    batch: image (B, S, S, 3) uint8, labels (B,) or (B, K), mask (B,).
    key: of the step.
    alpha: the weight of an example itself is drawn from Beta(alpha, alpha), once for the whole
      batch; 0: no blending, the batch is returned unchanged.

  Returns:
    The batch with partner_image and partner_labels, of the same shapes, and share (B,).
  """
  if not alpha:
    return batch
  share = jax.random.beta(jax.random.fold_in(key, _STREAM), alpha, alpha)
  partner = {name: jnp.flip(array, axis=0) for name, array in batch.items()}
  return batch | dict(
    partner_image=partner["image"],
    partner_labels=partner["labels"],
    share=jnp.where(partner["mask"] > 0, share, 1.0),
  )


def images(batch: dict) -> jax.Array:
  """The images (B, S, S, 3), from 0 to 255: float32 if they are blended, else uint8."""
  if "partner_image" not in batch:
    return batch["image"]
  share = batch["share"][:, None, None, None]
  return share * batch["image"] + (1 - share) * batch["partner_image"]


def blend(of_labels: Callable[[jax.Array], jax.Array], batch: dict) -> jax.Array:
  """A loss or an accuracy (B,) of blended images: its mean over both labels, weighted by share.

  The losses of this package are affine in the target, so the loss for a blended target equals the
  blend of the two losses. With several labels per image, each of the two images still gets its
  share, however many labels it has.

  Args:
    of_labels: labels (B,) or (B, K) -> losses (B,).
    batch: as `paired` or `cutmix.paired` returns it.
  """
  if "share" not in batch:
    return of_labels(batch["labels"])
  share = batch["share"]
  return share * of_labels(batch["labels"]) + (1 - share) * of_labels(batch["partner_labels"])


def whole(target: Callable[[jax.Array], jax.Array], batch: dict) -> jax.Array:
  """Targets (B, K) of blended images, in which every label with a share above 0 is true.

  Source: Wightman et al., "ResNet strikes back", 2021, Section 2: binary cross-entropy with MixUp
  and CutMix as a multi-label problem; DeiT III does the same.

  Args:
    target: labels (B,) or (B, K) -> indicators (B, K).
    batch: as for `blend`.
  """
  if "share" not in batch:
    return target(batch["labels"])
  share = batch["share"][:, None]
  own = target(batch["labels"])
  partner = target(batch["partner_labels"])
  return jnp.maximum(own * (share > 0), partner * (share < 1))
