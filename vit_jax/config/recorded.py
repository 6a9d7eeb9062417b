"""The settings in a run's config.json, and how they differ from others."""

import contextlib
import json
import pathlib
from collections.abc import Mapping

from vit_jax.config import plugins
from vit_jax.config.fields import AUTO
from vit_jax.config.parsing import from_dict, to_dict
from vit_jax.config.resolve import GIVEN
from vit_jax.config.run import Config
from vit_jax.process.errors import ConfigError
from vit_jax.process.text import quoted
from vit_jax.storage import files
from vit_jax.storage.base import UnreachableError
from vit_jax.storage.workdir import CHECKPOINTS

MAX_BYTES = 2**24

# (setting, what earlier versions recorded for "derive it", what is recorded for it now).
EARLIER = (
  ("accumulation", 0, AUTO),
  ("position_resizing", "", "bilinear_aligned"),
  ("data.resampling", "", "bilinear"),
  ("data.image_size", 0, AUTO),
  ("mesh.data", 0, AUTO),
  ("model.name", "", AUTO),
  ("model.num_classes", 0, AUTO),
  *((f"model.{key}", 0, AUTO) for key in ("patch", "depth", "width", "mlp_dim", "heads")),
  ("model.stages", [], AUTO),
  ("model.pool", "", AUTO),
)


# The first two of these, for each group of config.evaluate.
OF_EVALUATIONS = (("resize", -1), ("representation", ""))


# The values that runs had before versions recorded these settings.
LACKING = {
  "position_resizing": "bilinear_aligned",
  "data.resampling": "bilinear",
  "data.evaluate_squeeze": False,
}


def updated(settings: Mapping) -> dict:
  """Recorded settings, perhaps of an earlier version, as this version records them.

  0 and empty become AUTO only where they meant "derive it"; evaluate_resize=0 is a real value.

  Raises:
    ConfigError: they need a plugin that this command has not imported.
  """
  plugins.check(settings.get("plugins", ""))
  settings = json.loads(json.dumps(settings))
  for key, earlier, now in EARLIER:
    node, name = _place(settings, key)
    if node.get(name) == earlier:
      node[name] = now
  for evaluation in _groups(settings.get("evaluate")):
    for name, earlier in OF_EVALUATIONS:
      if evaluation.get(name) == earlier:
        evaluation[name] = AUTO
  settings.setdefault("derived", _derived(settings.get("origins")))
  for key, then in LACKING.items():
    node, name = _place(settings, key)
    node.setdefault(name, then)
  return settings


def _derived(origins) -> list[str]:
  """The settings that rules gave, by the records of earlier versions: those with an origin."""
  if not isinstance(origins, list):
    return []
  pairs = [pair for pair in origins if isinstance(pair, list) and len(pair) == 2]
  return [key for key, words in pairs if words != GIVEN]


def _groups(by_name) -> list[dict]:
  """The groups of settings that a group holds by name; other values are refused later."""
  if not isinstance(by_name, dict):
    return []
  return [value for value in by_name.values() if isinstance(value, dict)]


def _place(settings: dict, key: str) -> tuple[dict, str]:
  """The group that holds a setting, and its name there; an empty group if it is missing."""
  group, _, name = key.rpartition(".")
  node = settings
  if group:
    node = settings.get(group)
  if not isinstance(node, dict):
    node = {}
  return node, name


def read_config(workdir: pathlib.Path) -> Config:
  """The settings in WORKDIR/config.json.

  Raises:
    ConfigError: the file does not exist or cannot be read.
  """
  path = workdir / "config.json"
  there = files.exists(path)
  if not there and workdir.absolute().parent.name == CHECKPOINTS:
    run = workdir.absolute().parent.parent
    raise ConfigError(
      f"{workdir} is a checkpoint, and the settings are those of its run, {run}; to score it: "
      f"vit-jax evaluate {quoted(run)} --config.evaluate_step={workdir.name}"
    )
  if not there:
    raise ConfigError(
      f"{path} is not there, so the run's settings are not known; give --config=configs/NAME.py."
    )
  try:
    return from_dict(updated(files.read_json(path, most=MAX_BYTES)))
  except ConfigError as error:
    raise ConfigError(f"{path}: {error}") from error
  except UnreachableError:
    raise
  except (OSError, ValueError) as error:
    raise ConfigError(
      f"{path} does not hold the settings of a run ({error}); give --config=configs/NAME.py."
    ) from error


def changes(old: dict, new: dict) -> list[str]:
  """How the settings differ from the recorded settings of a run, as `differences` writes it.

  A setting that `old` lacks has its default. Settings that are AUTO are not compared: an earlier
  version left them to be derived, or the devices are not known yet.
  """
  with contextlib.suppress(ConfigError):  # `old` has settings that no longer exist
    old = to_dict(from_dict(updated(old)))
  return [_line(*each) for each in _differing(old, new) if AUTO not in each[1:]]


def differences(old: dict, new: dict) -> list[str]:
  """The settings that differ, as "config.model.name: 'ViT-B/16' -> 'ViT-L/16'".

  Between groups of different kinds, only the kind and the settings that both have are compared.
  """
  return [_line(*each) for each in _differing(old, new)]


def _line(key, before, after):
  return f"{key}: {before!r} -> {after!r}"


def _differing(old, new, prefix="config"):
  """Yields (key, its value in `old`, its value in `new`)."""
  keys = old.keys() | new.keys()
  if old.get("kind") != new.get("kind"):
    keys = old.keys() & new.keys()
  for key in sorted(keys - {"origins", "derived"}):
    before, after = old.get(key), new.get(key)
    if isinstance(before, dict) and isinstance(after, dict):
      yield from _differing(before, after, f"{prefix}.{key}")
    elif json.loads(json.dumps(before)) != json.loads(json.dumps(after)):
      yield f"{prefix}.{key}", before, after
