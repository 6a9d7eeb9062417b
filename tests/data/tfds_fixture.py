"""Writes small TFDS datasets as ArrayRecord, without TensorFlow."""

import pathlib

import numpy as np
import simplejpeg
import tensorflow_datasets as tfds

MULTI_LABEL = "tiny_multi_label"
SINGLE_LABEL = "tiny_single_label"
_TEST_SHARE = 5  # every fifth example is a test example


def write_multilabel_tfds(data_dir, *, num_examples: int, num_classes: int, seed: int) -> str:
  """Writes splits "train" and "test", 0 to 3 labels for each image; returns the dataset's name."""
  label = tfds.features.Sequence(tfds.features.ClassLabel(num_classes=num_classes))

  def draw(rng: np.random.Generator, index: int) -> list[int]:
    count = min(num_classes, 1 + index % 3) if index % 7 else 0
    return sorted(int(one) for one in rng.choice(num_classes, count, replace=False))

  return _write_jpegs(MULTI_LABEL, data_dir, label, draw, num_examples, seed)


def write_single_label_tfds(data_dir, *, num_examples: int, num_classes: int, seed: int) -> str:
  """Writes splits "train" and "test"; label = index % num_classes; returns the dataset's name."""
  label = tfds.features.ClassLabel(names=[f"kind {kind}" for kind in range(num_classes)])
  draw = lambda _, index: index % num_classes
  return _write_jpegs(SINGLE_LABEL, data_dir, label, draw, num_examples, seed)


def _write_jpegs(name, data_dir, label, draw, num_examples, seed) -> str:
  rng = np.random.default_rng(seed)
  examples = [{"image": jpeg_of(rng), "label": draw(rng, i)} for i in range(num_examples)]
  features = {"image": tfds.features.Image(encoding_format="jpeg"), "label": label}
  of_test = lambda test: [e for i, e in enumerate(examples) if (i % _TEST_SHARE == 0) == test]
  write(data_dir, name, features, {"train": of_test(False), "test": of_test(True)})
  return name


def write(
  data_dir: str | pathlib.Path,
  name: str,
  features: dict,
  splits: dict[str, list[dict]],
  version: str = "1.0.0",
) -> None:
  """Writes a dataset, as NAME or NAME/CONFIG, with these features and examples by split."""
  dataset, _, config = name.partition("/")

  class Given(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    VERSION = tfds.core.Version(version)
    BUILDER_CONFIGS = [tfds.core.BuilderConfig(name=config)] if config else []

    def _info(self):
      described = tfds.features.FeaturesDict(features)
      return tfds.core.DatasetInfo(builder=self, features=described, disable_shuffling=True)

    def _split_generators(self, dl_manager):
      del dl_manager
      return {split: enumerate(examples) for split, examples in splits.items()}

    def _generate_examples(self):
      raise NotImplementedError  # TFDS wants the method, and takes what `_split_generators` returns

  Given.name = dataset
  Given(data_dir=str(data_dir), file_format="array_record").download_and_prepare()


def jpeg_of(rng: np.random.Generator) -> bytes:
  """A JPEG of a random size between 24 and 200 pixels a side: a colour gradient with noise."""
  height, width = (int(side) for side in rng.integers(24, 200, 2))
  down, across = np.linspace(0, 1, height)[:, None, None], np.linspace(0, 1, width)[None, :, None]
  first, second, third = rng.uniform(0, 255, (3, 3))
  image = first + (second - first) * down + (third - first) * across / 2
  image = np.clip(image + rng.normal(0, 8, (height, width, 1)), 0, 255).astype(np.uint8)
  return simplejpeg.encode_jpeg(image, quality=90)


def tiny_jpeg() -> bytes:
  """A JPEG of one grey pixel."""
  return simplejpeg.encode_jpeg(np.full((1, 1, 3), 128, np.uint8))
