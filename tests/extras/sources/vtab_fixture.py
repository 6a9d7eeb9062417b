"""Writes small datasets with the names, versions and features of TFDS's own builders."""

import pathlib

import cv2
import numpy as np
import tensorflow_datasets as tfds

from tests.data import tfds_fixture


def png(pixels: np.ndarray) -> bytes:
  """Encodes grey or RGB pixels as PNG."""
  swapped = pixels if pixels.ndim == 2 else pixels[..., ::-1]
  return cv2.imencode(".png", swapped)[1].tobytes()


def write_like(data: str, data_dir: pathlib.Path, splits: dict[str, list[dict]]):
  """Writes examples as the dataset NAME[/CONFIG], with the features of the real dataset.

  Features that an example leaves out are filled: 0, empty, no objects.
  """
  real = tfds.builder(data, data_dir=str(data_dir))
  kinds = real.info.features

  filled = {
    split: [{key: filler(kind) for key, kind in kinds.items()} | example for example in examples]
    for split, examples in splits.items()
  }
  tfds_fixture.write(data_dir, data, dict(kinds), filled, str(real.version))


def filler(kind):
  """A value for a feature that does not matter."""
  if isinstance(kind, tfds.features.Image):
    return png(np.zeros((8, 8, 3), np.uint8))  # TFDS would encode pixels with TensorFlow
  if isinstance(kind, tfds.features.Sequence):
    return []
  if isinstance(kind, tfds.features.BBoxFeature):
    return tfds.features.BBox(0.0, 0.0, 1.0, 1.0)
  return "" if isinstance(kind, tfds.features.Text) else np.zeros(kind.shape, kind.np_dtype)
