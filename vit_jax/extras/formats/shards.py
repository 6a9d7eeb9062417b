"""The arrays in a folder of Hugging Face: in model.safetensors, or in shards of an index."""

import logging
import pathlib
import re
from collections.abc import Callable

import numpy as np

from vit_jax.process.text import listed, shown
from vit_jax.weights import arrays, card, safetensors

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
_log = logging.getLogger(__name__)
_SHARD = re.compile(r"\w[\w.-]*\.safetensors", re.ASCII)  # a name without a folder


def are_in(folder: pathlib.Path) -> bool:
  """Whether a folder holds weights in safetensors."""
  return (folder / WEIGHTS).is_file() or (folder / INDEX).is_file()


def names_in(folder: pathlib.Path) -> list[str]:
  """The names of all arrays, sorted; reads none of them.

  Raises:
    ValueError: as `load`.
  """
  if (folder / WEIGHTS).is_file():
    return sorted(safetensors.names_in(folder / WEIGHTS))
  return sorted(name for names in _shards(folder).values() for name in names)


def load(folder: pathlib.Path, wanted: Callable[[str], bool]) -> dict[str, np.ndarray]:
  """Reads the arrays whose names are `wanted`, in float32, under their own names.

  Args:
    folder: holds model.safetensors or, if it does not, model.safetensors.index.json and all shards
      that it names.
    wanted: (name) -> whether to read the array.

  Raises:
    ValueError: the index names something else than shards beside it; a shard is missing, or holds
      other arrays than the index says; or a file is damaged.
  """
  if (folder / WEIGHTS).is_file():
    return arrays.checked(safetensors.load_raw(folder / WEIGHTS, wanted))
  shards = _shards(folder)
  for path, names in shards.items():
    _check_names(path, names)
  _say_size(folder / INDEX, list(shards))
  flat = {}
  for path, names in shards.items():
    if any(map(wanted, names)):
      flat |= safetensors.load_raw(path, wanted)
  return arrays.checked(flat)


def _shards(folder: pathlib.Path) -> dict[pathlib.Path, set[str]]:
  """{shard: names of the arrays that it must hold}, by the index; all shards exist.

  Raises:
    ValueError: the index is damaged, or does not belong to the files beside it.
  """
  path = folder / INDEX
  content = card.read_json(path)
  places = content.get("weight_map")
  if not isinstance(places, dict):
    raise ValueError(f"{path} is no index of shards: weight_map is {shown(places)}.")
  arrays.check_count(len(places))
  files = {}
  for name, file in places.items():
    if not isinstance(file, str) or not _SHARD.fullmatch(file):
      raise ValueError(
        f"{path} places an array in {shown(file)}; a shard is a .safetensors file beside it."
      )
    files.setdefault(folder / file, set()).add(name)
  missing = sorted(file.name for file in files if not file.is_file())
  if missing:
    raise ValueError(
      f"{path} names {len(files)} shards, of which {len(missing)} are missing: {listed(missing)}."
    )
  total = sum(file.stat().st_size for file in files)
  if total > arrays.MAX_BYTES:
    raise ValueError(f"{path} names {total:,} bytes of shards; the most is {arrays.MAX_BYTES:,}.")
  return files


def _say_size(path: pathlib.Path, files: list[pathlib.Path]):
  """Warns if the index says another number of bytes, as after a conversion to another type.

  Names tell which arrays belong to a shard, and other libraries do not check the number.
  """
  described = card.read_json(path).get("metadata")
  if not isinstance(described, dict) or "total_size" not in described:
    return
  stored = sum(file.stat().st_size - 8 - safetensors.header_bytes(file) for file in files)
  if described["total_size"] != stored:
    _log.warning(
      "%s says total_size is %s, and the arrays of its shards have %s bytes. If the shards are of "
      "another model or version than the index, download them again.",
      path,
      shown(described["total_size"]),
      f"{stored:,}",
    )


def _check_names(path: pathlib.Path, names: set[str]):
  """Checks that a shard holds exactly the arrays that the index places there."""
  stored = set(safetensors.names_in(path))
  for words, others in (("lacks", names - stored), ("also holds", stored - names)):
    if others:
      raise ValueError(f"{path} {words} arrays, by {INDEX} beside it: {listed(sorted(others))}.")
