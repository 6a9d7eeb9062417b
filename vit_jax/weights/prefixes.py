"""Prefixes that trainers add to the names of a model's arrays: module., _orig_mod., backbone., ...

The first layer of the model shows the prefix. Arrays without the prefix belong to other modules of
the trainer, such as a projection head, and are left out. Of several models, the one that is the
moving average of another is taken, as their authors do: the teacher, or the target encoder.
"""

import re
from collections.abc import Collection

from vit_jax.process.text import listed

# The first layer by the names of timm, of transformers, whose names may begin with "vit.", that of
# BiT, and those of CLIP: in transformers, and in files of its authors, which call the image encoder
# "visual".
_FIRST = (
  re.compile(r"(.*\.)?patch_embed\.proj\.weight"),
  re.compile(r"(.*?\.)??(?:vit\.)?embeddings\.patch_embeddings\.projection\.weight"),
  re.compile(r"(.*\.)?stem\.conv\.weight"),
  re.compile(r"(.*\.)?embeddings\.patch_embeddings?\.weight"),
  re.compile(r"(.*\bvisual\.)conv1\.weight"),
)
AVERAGE = re.compile(r"(^|[._])(ema|teacher|target_encoder)([._]|$)")


def renamed(names: Collection[str]) -> dict[str, str]:
  """{name without the prefix: name} of a model's arrays; without a prefix the names are the same.

  Raises:
    ValueError: there are several models, and not one of them is a moving average.
  """
  prefix = _taken(_prefixes(names))
  return {name.removeprefix(prefix): name for name in names if name.startswith(prefix)}


def words(names: Collection[str], kept: dict[str, str]) -> str:
  """Says which prefix was left out, and which arrays and models; "" if none.

  Args:
    names: of a file.
    kept: what `renamed` made of them.
  """
  short, name = next(iter(kept.items()), ("", ""))
  if short == name:
    return ""
  prefix = name.removesuffix(short)
  text = f"Names are read without their prefix {prefix!r}."
  models = [other for other in _prefixes(names) if other != prefix]
  if models:
    return f"{text} It is a moving average; {_how_to_take(models)}"
  others = sorted(set(names) - set(kept.values()))
  if not others:
    return text
  return f"{text} Left out, because their names do not begin with it: {listed(others)}."


def _taken(prefixes: list[str]) -> str:
  """The prefix of the model that is read."""
  averages = [prefix for prefix in prefixes if AVERAGE.search(prefix)]
  if len(prefixes) > 1 and len(averages) != 1:
    raise ValueError(f"it holds {len(prefixes)} models; {_how_to_take(prefixes)}")
  return next(iter(averages or prefixes), "")


def _how_to_take(prefixes: list[str]) -> str:
  names = [prefix.removesuffix(".") for prefix in prefixes if prefix]
  if not names:
    return "for the other, delete its arrays."
  return (
    f"for {listed(names)}: vit-jax convert-pickle --source FILE --output OTHER.safetensors "
    f"--model={names[0]}"
  )


def _prefixes(names) -> list[str]:
  for first in _FIRST:
    found = {match[1] or "" for match in map(first.fullmatch, names) if match}
    if found:
      return sorted(found)
  return []
