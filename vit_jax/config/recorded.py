"""The settings in a run's config.json, and how they differ from others."""

import contextlib
import json
import pathlib
import re
from collections.abc import Mapping

from vit_jax import registry
from vit_jax.config import plugins
from vit_jax.config.fields import AUTO
from vit_jax.config.parsing import from_dict, to_dict
from vit_jax.config.run import Config
from vit_jax.process.errors import ConfigError
from vit_jax.process.text import quoted
from vit_jax.storage import files
from vit_jax.storage.base import UnreachableError
from vit_jax.storage.workdir import CHECKPOINTS

MAX_BYTES = 2**24


def from_record(recorded: Mapping, *groups: str) -> Config:
  """The settings that a run recorded; of the groups alone, if any are named.

  A program records all plugins that it has imported. So one that is not imported here is an error
  only if there are no such settings, or no such sources of data, without it.

  Raises:
    ConfigError: they need a plugin that this command has not imported, or are no settings of this
      version.
  """
  chosen = {key: recorded[key] for key in groups or recorded}
  try:
    config = from_dict(chosen)
  except ConfigError:
    plugins.check(recorded.get("plugins", ""))
    raise
  if not _prefixes(chosen) <= registry.SOURCES.keys():
    plugins.check(recorded.get("plugins", ""))
  return config


def _prefixes(settings) -> set[str]:
  """The words before the colon of the sources that recorded settings name, at any depth."""
  if isinstance(settings, list):
    return set().union(*map(_prefixes, settings))
  if not isinstance(settings, Mapping):
    return set()
  prefix = re.match(r"(\w+):(?!//)", str(settings.get("source", "")))
  return {prefix[1]} if prefix else set().union(*map(_prefixes, settings.values()))


def read_config(workdir: pathlib.Path, otherwise: str = "") -> Config:
  """The settings in WORKDIR/config.json.

  Args:
    workdir: the folder.
    otherwise: for messages, what the user can give in place of the file, such as "give DATA".

  Raises:
    ConfigError: the file does not exist or cannot be read.
  """
  path = workdir / "config.json"
  there = files.exists(path)
  advice = otherwise and f"; {otherwise}"
  if not there and workdir.absolute().parent.name == CHECKPOINTS:
    run = workdir.absolute().parent.parent
    raise ConfigError(
      f"{workdir} is a checkpoint, and the settings are those of its run, {run}; to score it: "
      f"vit-jax evaluate {quoted(run)} --config.evaluate_step={workdir.name}"
    )
  if not there:
    raise ConfigError(f"{path} is not there, so the run's settings are not known{advice}.")
  try:
    return from_record(files.read_json(path, most=MAX_BYTES))
  except ConfigError as error:
    raise ConfigError(f"{path}: {error}") from error
  except UnreachableError:
    raise
  except (OSError, ValueError) as error:
    raise ConfigError(f"{path} does not hold the settings of a run ({error}){advice}.") from error


def changes(old: dict, new: dict) -> list[str]:
  """How the settings differ from the recorded settings of a run, as `differences` writes it.

  A setting that `old` lacks has its default. Settings that are AUTO are not compared: what decides
  them, such as the devices, is not known yet. Plugins differ only if one of `old` is not imported:
  no setting names what others add.
  """
  with contextlib.suppress(ConfigError):  # `old` has settings that no longer exist
    old = to_dict(from_record(old))
    if not plugins.missing(old["plugins"]):
      old["plugins"] = new["plugins"]
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
