"""How images that are evaluated are resized before their centre is cut out."""

from collections.abc import Mapping

from vit_jax.config import ConfigError, Data, Dataset

# Few-shot images are cut out of a square of 256 pixels for models that see 224.
SQUARE = 256 / 224


def of_set(dataset: Dataset, data: Data) -> int:
  """Pixels of the smaller side before the centre of a set's images is cut out; 0: none is."""
  own = dataset.resize
  return data.evaluate_resize if own < 0 else round(own * data.image_size)


def square(side: int) -> int:
  """Side of the square that images are resized to where their features alone are wanted."""
  return round(side * SQUARE)


def check(data: Data):
  """The squares of evaluation fit the images that they are cut out of.

  Raises:
    ConfigError: they do not.
  """
  if 0 != data.evaluate_resize < data.image_size:
    raise ConfigError(
      f"config.data.evaluate_resize={data.evaluate_resize} is smaller than "
      f"config.data.image_size={data.image_size}, which is cut out of it; make it 0 or at least "
      f"{data.image_size}."
    )


def check_sets(datasets: Mapping[str, Dataset]):
  """As `check`, of the sets that have a resizing of their own.

  Raises:
    ConfigError: a square does not fit.
  """
  for name, dataset in datasets.items():
    if dataset.resize != -1 and 0 != dataset.resize < 1:
      raise ConfigError(
        f"config.data.evaluate.{name}.resize={dataset.resize} times the image size is smaller than "
        "that, which is cut out of it; make it 0, at least 1, or -1 (config.data.evaluate_resize)."
      )
