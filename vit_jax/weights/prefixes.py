"""Prefixes that trainers add to the names of a model's arrays: module., _orig_mod., backbone., ...

The first layer of the model shows the prefix. Arrays without the prefix belong to other modules of
the trainer, such as a projection head, and are left out.
"""

import re
from collections.abc import Collection

from vit_jax.process.text import listed

# The first layer by the names of timm and transformers, and that of BiT.
_FIRST = (
  re.compile(r"(.*\.)?(?:patch_embed\.proj|embeddings\.patch_embeddings\.projection)\.weight"),
  re.compile(r"(.*\.)?stem\.conv\.weight"),
)
_TRANSFORMERS = re.compile(r"(^|.*\.)vit\.")  # this "vit." belongs to the names of transformers


def renamed(names: Collection[str]) -> dict[str, str]:
  """{name without the prefix: name} of a model's arrays; without a prefix the names are the same.

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
  prefix = next(iter(prefixes), "")
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
      return sorted({_TRANSFORMERS.sub(r"\1", prefix) for prefix in found})
  return []
