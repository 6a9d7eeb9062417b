"""Applies the steps of config.data.augment to an image."""

from collections.abc import Callable, Sequence

import numpy as np

from vit_jax.config import Augmentation


def augmented(
  image: bytes | np.ndarray,
  *,
  rng: np.random.Generator,
  crop: Callable[..., np.ndarray],
  steps: Sequence[Augmentation],
) -> np.ndarray:
  """A crop of the image, changed by all steps in their order: (S, S, 3) uint8.

  The crop draws first, so it is the same with and without steps.

  Args:
    image: an encoded file, or pixels.
    rng: of the image's position in the run.
    crop: (image, rng=generator) -> (S, S, 3) uint8.
    steps: what is done to the crop.
  """
  pixels = crop(image, rng=rng)
  for step in steps:
    for operation in step.draw(rng, len(pixels)):
      pixels = operation(pixels)
  return pixels
