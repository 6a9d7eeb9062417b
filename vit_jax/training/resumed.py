"""Settings that a resumed or evaluated run takes from its checkpoint, not from the command."""

import dataclasses
import logging
import pathlib

from vit_jax.config import AUTO, ConfigError, Data, Dataset, Model, recorded, to_dict
from vit_jax.config.reading import expanded, read_json
from vit_jax.data import opening
from vit_jax.data.apart import Use
from vit_jax.data.opening import Opener
from vit_jax.storage import checkpoint

MAX_BYTES = 2**26  # of a checkpoint's metadata: mostly the names of classes and parameters
_log = logging.getLogger(__name__)


def typed(model: Model, platform: str, *workdirs: pathlib.Path | str) -> Model:
  """Replaces config.model.compute_dtype="auto" by the type of the first workdir with a checkpoint.

  Args:
    model: config.model.
    platform: JAX's name for the kind of devices; it decides if no workdir has a checkpoint.
    workdirs: runs to take the type from.
  """
  if model.compute_dtype != AUTO:
    return model
  kind = group_of("model", *workdirs).get("compute_dtype")
  if kind not in ("float32", "bfloat16"):
    kind = "float32" if platform == "cpu" else "bfloat16"
  return dataclasses.replace(model, compute_dtype=kind)


def trained_on(data: Data, num_classes: int, *workdirs: pathlib.Path | str) -> tuple[Use, ...]:
  """The training data of the first workdir with a checkpoint, without what cannot be opened.

  Args:
    data: config.data; its training data is replaced by that of the run.
    num_classes: config.model.num_classes.
    workdirs: runs to look at; if none has a checkpoint, the result is empty.
  """
  found = group_of("data", *workdirs)
  if not found:
    return ()
  values = to_dict(data)
  values["mix"] = found.get("mix") or {}
  try:
    values["train"] |= found.get("train") or {}
    run = recorded.settings({"data": values}).data
  except (ConfigError, TypeError, ValueError, AttributeError) as error:  # settings of a stranger
    return _not_checked(error)
  opener = opening.of_run(run, num_classes)
  return sum((_if_there(opener, *item) for item in run.training().items()), ())


def _if_there(opener: Opener, key: str, dataset: Dataset) -> tuple[Use, ...]:
  try:
    return (Use(f"The run's {key}", dataset, opener.source(dataset)),)
  except ConfigError as error:
    return _not_checked(error)


def _not_checked(error: Exception) -> tuple[Use, ...]:
  _log.warning("Cannot check whether training images are scored: %s", error)
  return ()


def group_of(group: str, *workdirs: pathlib.Path | str) -> dict:
  """A group of settings, from the newest readable checkpoint of the first workdir that has one.

  In place of a workdir, one of its checkpoints may be given, WORKDIR/checkpoints/STEP.

  Reads the file without Orbax, which would touch a device before the processes are connected.

  Returns:
    The settings by name; {} if no checkpoint can be read.
  """
  for place in workdirs:
    workdir, steps = checkpoint.named_by(expanded(place))
    for step in reversed(steps):
      path = workdir / checkpoint.FOLDER / str(step) / "meta" / "metadata"
      try:
        found = read_json(path, most=MAX_BYTES)["config"][group]
      except (OSError, ValueError, LookupError, TypeError):  # damaged; the restore will report it
        continue
      if isinstance(found, dict):
        return found
  return {}
