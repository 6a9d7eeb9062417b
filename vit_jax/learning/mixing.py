"""MixUp and CutMix, inside the compiled step: each image is mixed with another of the batch.

MixUp blends every image and its target: Zhang et al., "mixup: Beyond Empirical Risk Minimization",
2018, equation 1. One share is drawn for a whole batch, as in Kolesnikov et al., "Big Transfer
(BiT)", 2020. CutMix takes a rectangle of every image from another one: Yun et al., "CutMix:
Regularization Strategy to Train Strong Classifiers with Localizable Features", 2019, Section 3.1
and Algorithm A1. One rectangle is drawn for a whole batch, as there.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

# Folded into the key of a step. Dropout uses the key itself, or folds in the number of a part.
_MIXUP_STREAM = 2**32 - 1


def mixup(batch: dict, key: jax.Array, alpha: float) -> dict:
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
  share = jax.random.beta(jax.random.fold_in(key, _MIXUP_STREAM), alpha, alpha)
  partner = {name: jnp.flip(array, axis=0) for name, array in batch.items()}
  return batch | dict(
    partner_image=partner["image"],
    partner_labels=partner["labels"],
    share=jnp.where(partner["mask"] > 0, share, 1.0),
  )


def mixed_images(batch: dict) -> jax.Array:
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
    batch: as `mixup` or `cutmix` returns it.
  """
  if "share" not in batch:
    return of_labels(batch["labels"])
  share = batch["share"]
  return share * of_labels(batch["labels"]) + (1 - share) * of_labels(batch["partner_labels"])


def whole_targets(target: Callable[[jax.Array], jax.Array], batch: dict) -> jax.Array:
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


# Folded into the key of a step, as in MixUp.
_CUTMIX_STREAM = 2**32 - 2  # for the rectangle
_CHOICE = 2**32 - 3  # for the choice between MixUp and CutMix


def cutmix(batch: dict, key: jax.Array, alpha: float) -> dict:
  """The batch, with a rectangle of every image taken from its partner, as in `mixup`.

  An image whose partner is broken (mask 0) stays as it is.

  Args:
    batch: image (B, S, S, 3) uint8, labels (B,), mask (B,).
    key: of the step.
    alpha: the share that an image keeps is drawn from Beta(alpha, alpha), once for the whole batch.
      A rectangle that is partly outside the image leaves a larger share.

  Returns:
    The batch with partner_labels and share (B,), the fraction of its area that an image keeps.
  """
  inside = rectangle(jax.random.fold_in(key, _CUTMIX_STREAM), batch["image"].shape[1:3], alpha)
  partner = {name: jnp.flip(array, axis=0) for name, array in batch.items()}
  taken = (partner["mask"] > 0)[:, None, None] & inside
  return batch | dict(
    image=jnp.where(taken[..., None], partner["image"], batch["image"]),
    partner_labels=partner["labels"],
    share=1 - taken.mean(axis=(1, 2), dtype=jnp.float32),
  )


def mixup_or_cutmix(
  batch: dict, key: jax.Array, *, mixup_alpha: float, cutmix_alpha: float
) -> dict:
  """The batch after MixUp or CutMix, each for half of the steps by chance, as in timm.

  Arguments as for `mixup` and `cutmix`; with one alpha at 0, the other is always done.
  """
  if not cutmix_alpha:
    return mixup(batch, key, mixup_alpha)
  cut = cutmix(batch, key, cutmix_alpha)
  if not mixup_alpha:
    return cut
  blended = mixup(batch, key, mixup_alpha)
  cut |= dict(partner_image=cut["image"])  # blended with itself
  choice = jax.random.bernoulli(jax.random.fold_in(key, _CHOICE))
  return {name: jnp.where(choice, cut[name], blended[name]) for name in blended}


def rectangle(key: jax.Array, size: tuple[int, int], alpha: float) -> jax.Array:
  """A mask (H, W) of the pixels in a random rectangle of an image of H x W pixels.

  Its sides are sqrt(1 - share) of the image's, and its centre is a random pixel.
  """
  of_share, of_centre = jax.random.split(key)
  share = jnp.sqrt(1 - jax.random.beta(of_share, alpha, alpha))
  centre = jax.random.randint(of_centre, (2,), 0, jnp.array(size))

  def near(middle, side):
    half = (side * share).astype(jnp.int32) // 2
    return (jnp.arange(side) >= middle - half) & (jnp.arange(side) < middle + half)

  rows, columns = map(near, centre, size)
  return rows[:, None] & columns
