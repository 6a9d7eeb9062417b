"""Weights as .npz, under the published names."""

import dataclasses
import math
import pathlib
import zipfile

import numpy as np

from vit_jax.storage.files import atomic_write
from vit_jax.storage.tree import flatten
from vit_jax.weights import arrays, card, published
from vit_jax.weights.card import Card
from vit_jax.weights.format import WeightFormat, heads_for_timm, pooling_in_timm

LAYER = "representation layer"
# Layers that timm's reader of .npz ignores (timm 1.0.31), and a substring of their names.
LOST = {
  LAYER: "/pre_logits/",
  "LayerScale": "/LayerScale_",
  "norms of queries and keys": "/LayerNorm_query/",
  "registers": "/register_tokens",
  "norm of patches": "/embedding_norm/",
  "norm before the blocks": "/first_norm/",
  "norms of heads before their output": "/LayerNorm_heads/",
  "norms in MLPs": "/LayerNorm_hidden/",
  "norm behind pooling": "/pooled_norm/",
}
MAX_EXPANSION = 20  # uncompressed bytes for each byte of the file
HEADERS = {
  (1, 0): np.lib.format.read_array_header_1_0,
  (2, 0): np.lib.format.read_array_header_2_0,
}


def _load(path: pathlib.Path) -> dict:
  check_claims(path)
  with np.load(path, allow_pickle=False) as archive:
    return published.from_published(dict(archive))


def _save(path: pathlib.Path, params: dict, card: Card | None):
  flat = {name: np.asarray(x) for name, x in published.to_published(params).items()}

  with atomic_write(path) as partial, open(partial, "wb") as file:
    np.savez(file, **flat)


def _notes(params: dict, known: Card) -> list[str]:
  names = flatten(params)
  notes = [*heads_for_timm(known.model), *pooling_in_timm(known.model)]
  lost = [words for words, key in LOST.items() if any(key in f"/{name}" for name in names)]
  if not lost:
    return notes
  note = f"Other readers of .npz, such as timm, drop its {' and '.join(lost)} without a warning."
  if lost != [LAYER]:
    note += " For timm, export .safetensors."
  return [*notes, note]


def _card(path: pathlib.Path, params: dict | None) -> Card | None:
  """The card beside the file; without one, what names of big_vision's pairs of encoders tell."""
  known = card.read_beside(path)
  if known or not params or "head" not in params:
    return known
  with zipfile.ZipFile(path) as archive:
    of_pair = any(name.startswith(published.BESIDE_TEXTS) for name in archive.namelist())
  if not of_pair:
    return None
  return dataclasses.replace(card.inferred(params), projection=True, guessed=True)


def check_claims(path: pathlib.Path):
  """Checks the sizes that a file declares, before memory is allocated for its arrays.

  Raises:
    ValueError: it declares more than it holds or than is allowed, or holds something else.
  """
  with zipfile.ZipFile(path) as archive:
    entries = archive.infolist()
    names = {entry.filename.removesuffix(".npy") for entry in entries}
    arrays.check_count(len(entries))
    if len(names) < len(entries):
      raise ValueError("two of its arrays have the same name")
    total = sum(entry.file_size for entry in entries)
    size = path.stat().st_size
    if total > min(arrays.MAX_BYTES, MAX_EXPANSION * size):
      raise ValueError(
        f"it expands from {size:,} to {total:,} bytes; the most is {MAX_EXPANSION} times its size, "
        f"and {arrays.MAX_BYTES:,}"
      )
    for entry in entries:
      with archive.open(entry) as file:
        _check_header(file, entry.filename, entry.file_size)


def _check_header(file, name: str, size: int):
  """Checks the header of one array, in a file of `size` bytes."""
  if not name.endswith(".npy"):
    raise ValueError(f"{name} inside is not an array")
  version = np.lib.format.read_magic(file)
  if version not in HEADERS:
    raise ValueError(f"{name} has version {version}, which is unknown")
  shape, _, dtype = HEADERS[version](file)
  if dtype.hasobject:
    raise ValueError(f"{name} holds pickled objects, which are never unpickled")
  claimed = math.prod(shape) * dtype.itemsize
  there = size - file.tell()
  if min(shape, default=0) < 0 or claimed != there:
    raise ValueError(
      f"{name} claims shape {shape} of {dtype}, {claimed:,} bytes, but has {there:,}"
    )


NPZ = WeightFormat(words=".npz", suffix=".npz", load=_load, save=_save, card=_card, notes=_notes)
