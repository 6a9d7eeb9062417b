"""MixUp: every image and its target blended with another of the batch, inside the compiled step.

Source: Zhang et al., "mixup: Beyond Empirical Risk Minimization", 2018, equation 1; one share for a
whole batch as in Kolesnikov et al., "Big Transfer (BiT)", 2020.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

# Folded into the key of a step. Dropout has the key itself, or the number of a part folded in.
_STREAM = 2**32 - 1


def paired(batch: dict, key: jax.Array, alpha: float) -> dict:
  """The batch with a partner for every example: that of the batch in reverse order.

  The partners are chosen before the batch is divided, for accumulation or over devices, and the
  share depends on the key alone; so both are the same however it is divided. An example whose
  partner is broken (mask 0) keeps a share of 1: nothing of a broken image is seen by any other.

  Args:
    batch: image (B, S, S, 3) uint8, labels (B,) or (B, K), mask (B,).
    key: of the step.
    alpha: the share of each example itself is drawn from Beta(alpha, alpha), once for all; 0: none
      is blended, and the batch is returned as it is.

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
  """The images (B, S, S, 3), from 0 to 255: float32 where they are blended, else uint8."""
  if "share" not in batch:
    return batch["image"]
  share = batch["share"][:, None, None, None]
  return share * batch["image"] + (1 - share) * batch["partner_image"]


def loss(of_labels: Callable[[jax.Array], jax.Array], batch: dict) -> jax.Array:
  """The loss (B,) with blended targets.

  The losses of this package are affine in the target, so the loss with a blended target is the
  blend of the losses with each; with several labels an image, that gives each of the two images
  its share, whatever their numbers of labels.

  Args:
    of_labels: labels (B,) or (B, K) -> losses (B,).
    batch: as `paired` returns it.
  """
  if "share" not in batch:
    return of_labels(batch["labels"])
  share = batch["share"]
  return share * of_labels(batch["labels"]) + (1 - share) * of_labels(batch["partner_labels"])
