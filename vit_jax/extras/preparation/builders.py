"""Prepares datasets with TensorFlow Datasets' own builders and converters."""

import pathlib

from vit_jax.config import ConfigError


def build(name: str, data_dir: str) -> str:
  """Downloads and prepares a dataset with TensorFlow Datasets.

  Raises:
    ConfigError: the dataset or its version is unknown, or the user must download files by hand
      first.
    RuntimeError: it could not be downloaded or prepared.
  """
  import tensorflow_datasets as tfds

  try:
    builder = tfds.builder(name, data_dir=data_dir, file_format="array_record")
  except tfds.core.DatasetNotFoundError as error:
    raise ConfigError(f"TensorFlow Datasets has no dataset {name!r}.") from error
  except AssertionError as error:  # there is no such version
    raise ConfigError(f"{name}: {' '.join(str(error).split())}") from error
  try:
    builder.download_and_prepare()
  except AssertionError as error:  # asks the user to download files by hand
    raise ConfigError(" ".join(str(error).split())) from error
  except (OSError, RuntimeError, ValueError, ImportError):
    raise
  except Exception as error:  # a failed download or a changed file; TFDS has a class for each
    reason = " ".join(str(error).split())
    raise RuntimeError(
      f"{name} could not be prepared ({type(error).__name__}): {reason}"
    ) from error
  return f"Dataset: {builder.data_path}"


def convert(directory: pathlib.Path) -> str:
  """Adds ArrayRecord files to a dataset with TensorFlow Datasets.

  Raises:
    ConfigError: the folder is not a dataset.
  """
  if not (directory / "dataset_info.json").is_file():
    raise ConfigError(f"{directory} holds no dataset_info.json; name the folder of a version.")
  from tensorflow_datasets.scripts.cli import convert_format_utils

  convert_format_utils.convert_dataset(
    out_file_format="array_record", dataset_version_dir=[str(directory)], out_dir=None
  )
  return f"Dataset: {directory}"
