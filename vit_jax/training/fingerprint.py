"""What decides the numbers of a run: settings, program, data. Processes and starts compare it."""

import hashlib
import json
from collections.abc import Mapping, Sequence

import jax
import numpy as np

from vit_jax.config import Config, plugins, to_dict
from vit_jax.data.identity import Identity
from vit_jax.devices.comparison import UNKNOWN
from vit_jax.process import program
from vit_jax.storage.tree import flatten

# Places on one machine, whose content is compared in their stead, and what only decides speed.
OWN = ("source", "exclude", "init_from", "class_names", "cache", "threads", "bucket_cache", "ahead")


def of_start(config: Config, step: int, data: Mapping[str, Identity]) -> dict[str, str]:
  """What all processes must have in common before they touch a device, by name.

  Args:
    config: the settings, as the run has them.
    step: the steps that are done.
    data: the identities of the opened datasets.
  """
  facts = of_settings(config)
  facts["the newest checkpoint"] = f"step {step}" if step else "none"
  for key, identity in data.items():
    known = {field: str(value) or UNKNOWN for field, value in identity._asdict().items()}
    facts |= {f"{key} ({field})": value for field, value in known.items()}
  return facts | program.fingerprint(plugins.names_in(config.plugins))


def of_settings(config: Config) -> dict[str, str]:
  """All settings that hosts have in common, by their full names."""
  return _settings(to_dict(config), "config.")


def _settings(values: Mapping, prefix: str = "") -> dict[str, str]:
  """Settings as text, by their full names, without those that hosts may have of their own."""
  result = {}
  for key, value in values.items():
    if isinstance(value, Mapping):
      result |= _settings(value, f"{prefix}{key}.")
    elif key not in (*OWN, "origins", "derived"):
      result[prefix + key] = json.dumps(value)
  return result


def of_devices() -> dict[str, str]:
  """The devices of this process."""
  mine = jax.local_devices()
  return {"the number and kind of devices": f"{len(mine)} x {mine[0].device_kind}"}


def of_weights(params: Mapping) -> dict[str, str]:
  """A sum of the parameters that a run starts from; {}: it starts from none."""
  digest = hashlib.sha256()
  for name, array in sorted(flatten(params).items()):
    array = np.ascontiguousarray(array)
    digest.update(f"{name} {array.shape} {array.dtype} ".encode())
    digest.update(memoryview(array).cast("B") if array.size else b"")
  return {"the sum of the weights to start from": digest.hexdigest()[:16]}


def of_head(names: Sequence[str]) -> dict[str, str]:
  """A sum of the names of a head's classes, in their order."""
  digest = hashlib.sha256(json.dumps([*names]).encode())
  return {"the sum of the names of the head's classes": digest.hexdigest()[:16]}


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
  """How the program differs from that of the steps so far, as settings do; [] if not known."""
  if not before:
    return []
  names = sorted(before.keys() | now.keys())
  show = lambda values, name: repr(values[name]) if name in values else "not set"
  return [
    f"{name}: {show(before, name)} -> {show(now, name)}"
    for name in names
    if before.get(name) != now.get(name)
  ]
