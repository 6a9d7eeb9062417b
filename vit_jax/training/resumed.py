"""What a run that is taken up, or scored, was begun with, though the command does not say so."""

import dataclasses
import json
import logging
import pathlib

from vit_jax.config import AUTO, EARLIER, Config, ConfigError, from_dict, to_dict
from vit_jax.config.reading import expanded
from vit_jax.data import opening
from vit_jax.data.apart import Use
from vit_jax.storage import checkpoint

UNIFORM = "uniform"
_log = logging.getLogger(__name__)


def completed(config: Config, *workdirs: pathlib.Path | str) -> Config:
  """The settings with config.data.sampling, where that is empty, as the first of these runs has it.

  Args:
    config: the settings.
    workdirs: places without a checkpoint do not count. Where none counts, sampling is uniform.
  """
  if config.data.sampling:
    return config
  found = group_of("data", *workdirs)
  sampling = (found.get("sampling", EARLIER.data.sampling) if found else "") or UNIFORM
  return dataclasses.replace(config, data=dataclasses.replace(config.data, sampling=sampling))


def typed(config: Config, platform: str, *workdirs: pathlib.Path | str) -> Config:
  """The settings with config.model.compute_dtype, where that is "auto", as in the first of these.

  Args:
    config: the settings.
    platform: of the devices, as JAX names it; it decides where no run does.
    workdirs: places without a checkpoint do not count.
  """
  if config.model.compute_dtype != AUTO:
    return config
  kind = group_of("model", *workdirs).get("compute_dtype")
  if kind not in ("float32", "bfloat16"):
    kind = "float32" if platform == "cpu" else "bfloat16"
  return dataclasses.replace(config, model=dataclasses.replace(config.model, compute_dtype=kind))


def trained_on(config: Config, *workdirs: pathlib.Path | str) -> Use | None:
  """The training data of the first of these runs; None where there is none, or it cannot be opened.

  Args:
    config: settings that are not of the data.
    workdirs: places without a checkpoint do not count.
  """
  found = group_of("data", *workdirs)
  if not found:
    return None
  values = to_dict(config)
  values["data"]["sampling"] = found.get("sampling", EARLIER.data.sampling)
  values["data"]["train"] |= found.get("train") or {}
  try:
    run = from_dict(values)
    source = opening.of_run(run).source(run.data.train)
  except ConfigError as error:
    _log.warning("Whether images are scored that were trained on cannot be told: %s", error)
    return None
  return Use("The run's config.data.train", run.data.train, source)


def group_of(group: str, *workdirs: pathlib.Path | str) -> dict:
  """A group of settings, in the newest checkpoint that can be read of the first workdir with one.

  Orbax, which would touch a device before the processes have found one another, is not asked.

  Returns:
    {} where there is none.
  """
  for workdir in workdirs:
    folder = expanded(workdir)
    for step in reversed(checkpoint.available(folder)):
      path = folder / checkpoint.FOLDER / str(step) / "meta" / "metadata"
      try:
        found = json.loads(path.read_bytes())["config"][group]
      except (OSError, ValueError, LookupError, TypeError):  # damaged; restoring will name it
        continue
      if isinstance(found, dict):
        return found
  return {}
