"""The settings in a run's config.json."""

import pathlib

from vit_jax.config.parsing import from_dict
from vit_jax.config.run import Config
from vit_jax.process.errors import ConfigError
from vit_jax.storage import files

MAX_BYTES = 2**24


def read(workdir: pathlib.Path) -> Config:
  """The settings in WORKDIR/config.json.

  Raises:
    ConfigError: the file does not exist or cannot be read.
  """
  path = workdir / "config.json"
  if not files.exists(path):
    raise ConfigError(
      f"{path} is not there, so the run's settings are not known; give --config=configs/NAME.py."
    )
  try:
    return from_dict(files.read_json(path, most=MAX_BYTES))
  except ConfigError as error:
    raise ConfigError(f"{path}: {error}") from error
  except (OSError, ValueError) as error:
    raise ConfigError(
      f"{path} does not hold the settings of a run ({error}); give --config=configs/NAME.py."
    ) from error
