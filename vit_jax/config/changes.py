"""How the settings of two runs differ."""

import json

from vit_jax.config.parsing import to_dict
from vit_jax.config.run import NAMED, Config


def changes(old: dict, new: dict) -> list[str]:
  """The settings that differ, as "config.model.name: 'ViT-B/16' -> 'ViT-L/16'".

  A setting that `old` lacks has its default there.
  """
  return _changes(old, new, to_dict(Config()), "config")


def _changes(old, new, default, prefix):
  result = []
  for key in sorted(old.keys() | new.keys()):
    usual = NAMED[prefix] if prefix in NAMED else default.get(key)
    before, after = old.get(key, usual), new.get(key)
    if isinstance(before, dict) and isinstance(after, dict):
      result += _changes(before, after, usual or {}, f"{prefix}.{key}")
    elif json.loads(json.dumps(before)) != json.loads(json.dumps(after)):
      result.append(f"{prefix}.{key}: {before!r} -> {after!r}")
  return result
