"""How evaluation resizes images before it cuts out their centre."""

from collections.abc import Mapping

from vit_jax.config import ConfigError, Data, Dataset

# Few-shot evaluation cuts 224 pixels out of a square of 256.
SQUARE = 256 / 224


def of_set(dataset: Dataset, data: Data) -> int:
  """Pixels to which the smaller side of a set's images is resized before the centre is cut out.

  0: the whole image is resized to the square.
  """
  own = dataset.resize
  return data.evaluate_resize if own < 0 else round(own * data.image_size)


def in_words(resize: int, side: int) -> str:
  """Says how an image becomes a square of `side` pixels."""
  return f"smaller side to {resize} px, centre of {side} px" if resize else f"{side} x {side} px"


def square(side: int) -> int:
  """Side of the square to which images are resized for evaluations of features."""
  return round(side * SQUARE)


def check(data: Data):
  """Checks that evaluation resizes images to at least the size that it cuts out.

  Raises:
    ConfigError: the resized image is smaller.
  """
  if 0 != data.evaluate_resize < data.image_size:
    raise ConfigError(
      f"config.data.evaluate_resize={data.evaluate_resize} is smaller than "
      f"config.data.image_size={data.image_size}, which is cut out of it; make it 0 or at least "
      f"{data.image_size}."
    )


def check_sets(datasets: Mapping[str, Dataset]):
  """Like `check`, for evaluation sets with a `resize` of their own.

  Raises:
    ConfigError: a resized image is smaller than the square that is cut out of it.
  """
  for name, dataset in datasets.items():
    if dataset.resize != -1 and 0 != dataset.resize < 1:
      raise ConfigError(
        f"config.data.evaluate.{name}.resize={dataset.resize} times the image size is smaller than "
        "the image size; make it 0, at least 1, or -1 for config.data.evaluate_resize."
      )
