"""Writes small datasets with the names, versions and features of TFDS's own builders."""

import pathlib

import cv2
import numpy as np
import tensorflow_datasets as tfds


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

  class Like(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    VERSION = real.version
    name = real.name

    def _info(self):
      return tfds.core.DatasetInfo(builder=self, features=kinds, disable_shuffling=True)

    def _split_generators(self, dl_manager):
      del dl_manager
      return {split: self._generate_examples(split) for split in splits}

    def _generate_examples(self, split):
      for index, example in enumerate(splits[split]):
        yield index, {key: filler(kind) for key, kind in kinds.items()} | example

  # A builder without configs writes NAME/VERSION; one with a config writes NAME/CONFIG/VERSION.
  there = pathlib.Path(data_dir) / data
  made = there.with_name(f"{there.name}.made")
  Like(data_dir=str(made), file_format="array_record").download_and_prepare()
  there.parent.mkdir(parents=True, exist_ok=True)
  (made / real.name).rename(there)


def filler(kind):
  """A value for a feature that does not matter."""
  if isinstance(kind, tfds.features.Image):
    return png(np.zeros((8, 8, 3), np.uint8))  # TFDS would encode pixels with TensorFlow
  if isinstance(kind, tfds.features.Sequence):
    return []
  if isinstance(kind, tfds.features.BBoxFeature):
    return tfds.features.BBox(0.0, 0.0, 1.0, 1.0)
  return "" if isinstance(kind, tfds.features.Text) else np.zeros(kind.shape, kind.np_dtype)
