"""Applies the steps of config.data.augment to an image."""

from collections.abc import Callable, Sequence

import numpy as np

from vit_jax.config import Augmentation, as_size
from vit_jax.data.crops import Cut


def augmented(
  image: bytes | np.ndarray,
  *,
  rng: np.random.Generator,
  crop: Callable[..., Cut],
  steps: Sequence[Augmentation],
) -> Cut:
  """A crop of the image, changed by all steps in their order.

  The crop draws first, so it is the same with and without steps.

  Args:
    image: an encoded file, or pixels.
    rng: generator for the image's position in the run.
    crop: (image, rng=generator) -> Cut.
    steps: the steps, in the order in which they change the crop.
  """
  cut = crop(image, rng=rng)
  pixels = cut.pixels
  size = as_size(pixels.shape[:2])
  for step in steps:
    for operation in step.draw(rng, size):
      pixels = operation(pixels)
  return cut._replace(pixels=pixels)
