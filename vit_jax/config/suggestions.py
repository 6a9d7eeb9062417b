"""Messages that suggest what the user may have meant."""

import dataclasses
import difflib
import pathlib
from collections.abc import Mapping
from typing import Any

from vit_jax.config import synonyms
from vit_jax.config.fields import Group
from vit_jax.config.run import Config


def similar(word: str, known) -> str:
  """The names of `known` most similar to `word`, best first, joined by commas; ignores case."""
  return ", ".join((alike(word, sorted(known), 0.5) or sorted(known))[:5])


def unknown(path: str, key: str, known, group: Group | None = None) -> str:
  """One sentence about a key that the group `path`, with the settings `known`, does not have.

  If another kind of the group has it, it names that kind.
  It suggests first the setting that other libraries call by this name, then the settings with the
  most similar names. Among equally similar names, those of this group come first.
  """
  if now := synonyms.MOVED.get(f"{path}.{key}"):
    return f"{path}.{key} is not a setting; give {now}."
  of_kinds = [kind for kind, settings in group.classes() if has(settings, key)] if group else []
  if of_kinds:
    kinds = " or ".join(f"--{path}.kind={kind}" for kind in of_kinds)
    return f"{path}.{key} is a setting of another kind; give {kinds} too, or leave it out."
  here = [f"{path}.{name}" for name in sorted(known)] or [path]
  names = dict.fromkeys([*here, *_dotted(dataclasses.asdict(Config()), "config")])
  found = alike(key, names, 0.62, own=lambda name: name.rpartition(".")[2])
  called = [setting for setting in [synonyms.ours(key)] if setting]
  near = dict.fromkeys([*called, *(found or ([] if called else here))])
  return f"{path}.{key} is not a setting; nearest: {', '.join([*near][:5])}."


def has(settings: type, key: str) -> bool:
  """Whether a class of settings has the field `key`."""
  return any(field.name == key for field in dataclasses.fields(settings))


def alike(word: str, names, cutoff: float, own=str) -> list[str]:
  """The `names` whose `own` part is similar to the word, best first; ignores case.

  The cutoff is that of difflib: 1 accepts only equal words, 0 any word.
  """
  keys = {own(name).lower() for name in names}
  close = difflib.get_close_matches(word.lower(), keys, cutoff=cutoff)
  return [name for like in close for name in names if own(name).lower() == like]


def missing_recipe(path: str) -> str:
  """One sentence about a missing recipe; suggests recipes from its folder and from configs/."""
  folders = pathlib.Path(path).parent, pathlib.Path("configs")
  others = {str(other) for folder in folders for other in folder.glob("*.py")}
  if others:
    return f"There is no recipe {path}; nearest: {similar(path, others)}."
  return (
    f"There is no recipe {path}, nor any other in its folder or in configs; run from the project's "
    "root, or give the recipe's whole path."
  )


def _dotted(values: Mapping[str, Any], path: str) -> list[str]:
  """The dotted names of all settings and groups below `path`."""
  names = []
  for key, value in values.items():
    names.append(f"{path}.{key}")
    if isinstance(value, Mapping):
      names += _dotted(value, names[-1])
  return names
