"""What tells weights apart that lay at the same path at different times."""

import functools
import hashlib
import pathlib

from vit_jax.config import ConfigError
from vit_jax.config.reading import expanded, regular
from vit_jax.storage.workdir import CHECKPOINTS, MANIFEST


@functools.cache
def of_weights(init_from: str) -> str:
  """The sums of the files of weights; "" if nothing is there.

  Of a workdir it is the sum of the newest checkpoint's manifest, which has those of its files.

  Args:
    init_from: a file, a Hugging Face folder, a workdir, or one of its checkpoints.

  Raises:
    ConfigError: a file cannot be read.
  """
  return " ".join(map(sum_of, files_of(expanded(init_from))))


def sum_of(path: pathlib.Path) -> str:
  """The SHA-256 sum of a file; raises ConfigError if it cannot be read."""
  try:
    with open(path, "rb", opener=regular) as stream:
      return hashlib.file_digest(stream, "sha256").hexdigest()
  except OSError as error:
    raise ConfigError(f"{path} cannot be read: {error}.") from error


def files_of(path: pathlib.Path) -> list[pathlib.Path]:
  """The files whose content makes up the weights at a path."""
  steps = [one for one in (path / CHECKPOINTS).glob(f"*/{MANIFEST}") if one.parent.name.isdecimal()]
  if steps:
    return [max(steps, key=lambda one: int(one.parent.name))]
  named = [path / MANIFEST, path / "config.json", path / "model.safetensors"]
  return [one for one in (path, path.with_suffix(".json"), *named) if one.is_file()]
