"""Loads the file of a study: a function for each scale, which returns the study."""

import os
import pickle
from collections.abc import Callable

from vit_jax.config import ConfigError, python_file, similar
from vit_jax.experiments.studies.study import Study, check

SCALES = ("small", "paper")


def load(path: str, scale: str) -> Study:
  """The study that the function `scale` of a file returns.

  Raises:
    ConfigError: there is no such file or scale, it fails, or the study is wrong.
  """
  made = functions(path)
  if scale not in made:
    known = " and ".join(made) or f"neither {' nor '.join(SCALES)}"
    raise ConfigError(f"{path} has no scale {scale!r}; it has {known}.")
  with python_file.blaming(path):
    study = made[scale]()
  if not isinstance(study, Study):
    raise ConfigError(f"{path}: {scale}() returned {type(study).__name__}; it must return a Study.")
  check(study, path)
  check_plain(study, path)
  return study


def check_plain(study: Study, path: str):
  """Checks that a study can be sent to another process, where its runs are checked.

  Raises:
    ConfigError: it holds something that cannot be.
  """
  try:
    pickle.dumps(study)
  except (pickle.PicklingError, TypeError, AttributeError) as error:
    raise ConfigError(
      f"{path}: the study holds more than text, numbers, tuples and dicts ({error}); write "
      "str(...), float(...) or dict(...) around what is something else."
    ) from error


def functions(path: str) -> dict[str, Callable[[], Study]]:
  """The scales of a file, each with its function."""
  if not os.path.isfile(path):
    folder = os.path.dirname(path) or "."
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    others = [os.path.join(folder, name) for name in names if name.endswith(".py")]
    nearest = f"; nearest: {similar(path, others)}" if others else ""
    raise ConfigError(f"There is no study {path}{nearest}.")
  found = python_file.run(path)
  return {scale: found[scale] for scale in SCALES if callable(found.get(scale))}
