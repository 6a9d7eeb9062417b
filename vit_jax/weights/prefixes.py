"""What trainers put before the names of a model's arrays: module., _orig_mod., backbone., ...

Where the model begins is told by its first layer, whatever the prefix is. Arrays without the prefix
belong to other parts of the trainer's model and are left out, such as a projection head.
"""

import re
from collections.abc import Collection

from vit_jax.process.text import listed

# The first layer by the names of timm and transformers, and that of BiT.
_FIRST = (
  re.compile(r"(.*\.)?(?:patch_embed\.proj|embeddings\.patch_embeddings\.projection)\.weight"),
  re.compile(r"(.*\.)?stem\.conv\.weight"),
)
_PART = re.compile(r"(^|.*\.)vit\.")  # belongs to the names of transformers


def renamed(names: Collection[str]) -> dict[str, str]:
  """{name without the prefix: name} of the arrays of a model; all as they are without a prefix.

  Raises:
    ValueError: there are several models.
  """
  prefixes = _prefixes(names)
  if len(prefixes) > 1:
    raise ValueError(
      f"it holds {len(prefixes)} models, with names that begin with "
      f"{listed(prefixes)}; keep the arrays of one of them (the command that converts a "
      "pickled file takes such a name at its end)"
    )
  prefix = prefixes[0] if prefixes else ""
  return {name.removeprefix(prefix): name for name in names if name.startswith(prefix)}


def words(names: Collection[str], kept: dict[str, str]) -> str:
  """Says which prefix was left out, and which arrays; "" if none.

  Args:
    names: of a file.
    kept: what `renamed` made of them.
  """
  short, name = next(iter(kept.items()))
  if short == name:
    return ""
  text = f"Names are read without their prefix {name.removesuffix(short)!r}."
  others = sorted(set(names) - set(kept.values()))
  if not others:
    return text
  return f"{text} Left out, because their names do not begin with it: {listed(others)}."


def _prefixes(names) -> list[str]:
  for first in _FIRST:
    found = {match[1] or "" for match in map(first.fullmatch, names) if match}
    if found:
      return sorted({_PART.sub(r"\1", prefix) for prefix in found})
  return []
