"""Data sets of TensorFlow Datasets' own, which it downloads or converts itself."""

import pathlib

from vit_jax.config import ConfigError


def build(name: str, data_dir: str) -> str:
  """Lets TensorFlow Datasets download and prepare one of its own.

  Raises:
    ConfigError: it knows no such data set, or it needs files that are to be downloaded by hand.
  """
  import tensorflow_datasets as tfds

  try:
    builder = tfds.builder(name, data_dir=data_dir, file_format="array_record")
  except tfds.core.DatasetNotFoundError as error:
    raise ConfigError(f"TensorFlow Datasets has no data set {name!r}.") from error
  try:
    builder.download_and_prepare()
  except AssertionError as error:  # so it asks for files that nobody may download but the user
    raise ConfigError(" ".join(str(error).split())) from error
  return f"Data set: {builder.data_path}"


def convert(directory: pathlib.Path) -> str:
  """Lets TensorFlow Datasets add ArrayRecord files to a data set.

  Raises:
    ConfigError: there is no data set.
  """
  if not (directory / "dataset_info.json").is_file():
    raise ConfigError(f"{directory} holds no dataset_info.json; name the folder of a version.")
  from tensorflow_datasets.scripts.cli import convert_format_utils

  convert_format_utils.convert_dataset(
    out_file_format="array_record", dataset_version_dir=[str(directory)], out_dir=None
  )
  return f"Data set: {directory}"
