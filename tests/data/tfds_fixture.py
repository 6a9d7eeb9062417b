"""Writes small TFDS datasets of real JPEGs as ArrayRecord, without TensorFlow."""

import pathlib

import numpy as np
import simplejpeg
import tensorflow_datasets as tfds

MULTI_LABEL = "tiny_multi_label"
SINGLE_LABEL = "tiny_single_label"
_TEST_SHARE = 5  # every fifth example is a test example


def write_multilabel_tfds(
  data_dir: str | pathlib.Path, *, num_examples: int, num_classes: int, seed: int
) -> str:
  """Writes splits "train" and "test", 0 to 3 labels for each image; returns the dataset's name."""
  label = tfds.features.Sequence(tfds.features.ClassLabel(num_classes=num_classes))

  def draw(rng: np.random.Generator, index: int) -> list[int]:
    count = min(num_classes, 1 + index % 3) if index % 7 else 0
    return sorted(int(one) for one in rng.choice(num_classes, count, replace=False))

  _write(MULTI_LABEL, data_dir, label=label, draw=draw, num_examples=num_examples, seed=seed)
  return MULTI_LABEL


def write_single_label_tfds(
  data_dir: str | pathlib.Path, *, num_examples: int, num_classes: int, seed: int
) -> str:
  """Writes splits "train" and "test"; label = index % num_classes; returns the dataset's name."""
  label = tfds.features.ClassLabel(names=[f"kind {kind}" for kind in range(num_classes)])

  def draw(rng: np.random.Generator, index: int) -> int:
    del rng
    return index % num_classes

  _write(SINGLE_LABEL, data_dir, label=label, draw=draw, num_examples=num_examples, seed=seed)
  return SINGLE_LABEL


def write_examples(
  data_dir: str | pathlib.Path, name: str, *, split: str, features: dict, examples: list[dict]
) -> None:
  """Writes a dataset of one split, as NAME or NAME/CONFIG, with these features."""
  dataset, _, config = name.partition("/")

  class Given(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    VERSION = tfds.core.Version("1.0.0")
    BUILDER_CONFIGS = [tfds.core.BuilderConfig(name=config)] if config else []

    def _info(self):
      return tfds.core.DatasetInfo(
        builder=self, features=tfds.features.FeaturesDict(features), disable_shuffling=True
      )

    def _split_generators(self, dl_manager):
      del dl_manager
      return {split: self._generate_examples()}

    def _generate_examples(self):
      yield from enumerate(examples)

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


def _write(name, data_dir, *, label, draw, num_examples, seed) -> None:
  rng = np.random.default_rng(seed)
  examples = [{"image": jpeg_of(rng), "label": draw(rng, index)} for index in range(num_examples)]
  builder = _builder_class(name, label=label, examples=examples)(
    data_dir=str(data_dir), file_format="array_record"
  )
  builder.download_and_prepare()


def _builder_class(class_name: str, *, label, examples: list[dict]) -> type:
  """A builder over examples in memory; TFDS takes its name from the class attribute."""

  class Tiny(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    VERSION = tfds.core.Version("1.0.0")
    name = class_name

    def _info(self):
      features = tfds.features.FeaturesDict(
        {"image": tfds.features.Image(encoding_format="jpeg"), "label": label}
      )
      return tfds.core.DatasetInfo(builder=self, features=features, disable_shuffling=True)

    def _split_generators(self, dl_manager):
      del dl_manager
      return {"train": self._generate_examples(False), "test": self._generate_examples(True)}

    def _generate_examples(self, test):
      for index, example in enumerate(examples):
        if (index % _TEST_SHARE == 0) == test:
          yield index, example

  return Tiny
