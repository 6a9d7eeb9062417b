"""Estimates properties of a source from a sample of its images."""

import statistics
from collections.abc import Iterator

from vit_jax.config.data import SIDE
from vit_jax.data import images
from vit_jax.data.sources import Source

SAMPLE = 32  # images that are decoded


def median_side(source: Source, *, max_pixels: int) -> int:
  """The median smaller side of a sample of images, in pixels; SIDE if none can be decoded."""

  def sides() -> Iterator[int]:
    for index in range(0, len(source), max(1, len(source) // SAMPLE)):
      try:
        yield min(images.as_rgb(source[index].image, max_pixels=max_pixels).shape[:2])
      except images.BadImage:
        continue

  return round(statistics.median([*sides()] or [SIDE]))
