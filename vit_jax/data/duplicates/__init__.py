"""Finds images of one source that are copies of images of others; the command is tools/dedup.py."""

from vit_jax.config import Dataset
from vit_jax.data import sources
from vit_jax.data.sources import Source


def open_one(dataset: Dataset, max_pixels: int) -> Source:
  """The source of a dataset; images of more than `max_pixels` pixels count as broken."""
  return sources.open_source(
    dataset.source,
    split=dataset.split,
    image_key=dataset.image_key,
    label_key=dataset.label_key,
    max_pixels=max_pixels,
  )
