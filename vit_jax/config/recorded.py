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
from vit_jax.storage import files
from vit_jax.storage.base import UnreachableError

MAX_BYTES = 2**24

# What earlier versions recorded for "derive it", by the setting; and what stands for it now.
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


OF_EVALUATIONS = ("resize", -1), ("representation", "")  # the same, of each of config.evaluate


# How the runs of versions that did not record it prepared images and positions.
LACKING = {
  "position_resizing": "bilinear_aligned",
  "data.resampling": "bilinear",
  "data.evaluate_squeeze": False,
}


def updated(settings: Mapping) -> dict:
  """Recorded settings, also of earlier versions, as those of this version.

  0 and empty become AUTO only where they meant that a value is derived: evaluate_resize=0 is one.

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
  """The settings that rules gave, as earlier versions tell them: those with an origin."""
  pairs = origins if isinstance(origins, list) else []
  pairs = [pair for pair in pairs if isinstance(pair, list) and len(pair) == 2]
  return [key for key, words in pairs if words != GIVEN]


def _groups(by_name) -> list[dict]:
  """The groups of settings that a group holds by name; what is none is left to be refused."""
  values = by_name.values() if isinstance(by_name, dict) else ()
  return [value for value in values if isinstance(value, dict)]


def _place(settings: dict, key: str) -> tuple[dict, str]:
  """The group that holds a setting, and its name there; a group that is missing is empty."""
  group, _, name = key.rpartition(".")
  node = settings.get(group, {}) if group else settings
  return (node if isinstance(node, dict) else {}), name


def read_config(workdir: pathlib.Path) -> Config:
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
  """How the settings differ from those of a run that are recorded, as `differences` writes it.

  A setting that `old` lacks has its default there. What is AUTO, since an earlier version left it
  to be derived or the devices are not known yet, is not compared.
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
  other_kind = old.get("kind") != new.get("kind")
  keys = old.keys() & new.keys() if other_kind else old.keys() | new.keys()
  for key in sorted(keys - {"origins", "derived"}):
    before, after = old.get(key), new.get(key)
    if isinstance(before, dict) and isinstance(after, dict):
      yield from _differing(before, after, f"{prefix}.{key}")
    elif json.loads(json.dumps(before)) != json.loads(json.dumps(after)):
      yield f"{prefix}.{key}", before, after
