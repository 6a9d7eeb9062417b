"""Weights as safetensors, under timm's names, or the published names if timm has no such model.

A file of this project also holds its card, so that it is complete without the card beside it.
"""

import contextlib
import json
import logging
import os
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import safetensors
import safetensors.numpy

from vit_jax.config import Size
from vit_jax.models.recognition import UNKNOWN
from vit_jax.registry import ARRAY_NAMES
from vit_jax.storage.files import atomic_write, is_file
from vit_jax.storage.tree import flatten
from vit_jax.weights import arrays, card, prefixes, published
from vit_jax.weights.card import Card
from vit_jax.weights.format import ArrayNames, Heads, WeightFormat

DTYPES = ("F64", "F32", "F16", "BF16")
# Keys of a file's metadata.
CARD = "vit_jax_card"
HEADS = ("vit_jax_heads", "vit_jax_pool_heads")  # of the blocks, of attention pooling; 0: none
MAX_HEADS = 10**4
MAX_HEADER = 2**24  # bytes; the card of ImageNet-21k takes 1 MB
TRANSFORMERS = ("vit.", "embeddings.", "encoder.layer.")
_log = logging.getLogger(__name__)


def _load(path: pathlib.Path) -> dict:
  flat = _arrays(path)
  _, metadata = _header(path)
  if library := _named_by(flat):
    of_file = _heads(metadata), _ours(metadata), _image_size(metadata, path)
    return library.load(arrays.checked(flat), *of_file)
  if any(name.startswith(TRANSFORMERS) for name in flat):
    raise ValueError("its names are those of transformers; give the folder with its config.json")
  return published.from_published(flat)


def _save(path: pathlib.Path, params: dict, known: Card | None):
  metadata = {}
  if known:
    metadata[CARD] = json.dumps(card.values_of(known))
  flat = None
  with contextlib.suppress(ValueError):  # the library has no such model
    flat = _written_names().save(params, known.model if known else UNKNOWN)
    heads = _heads_in(params)
    metadata |= {key: str(x) for key, x in zip(HEADS, heads, strict=True)}
  save_arrays(path, flat or published.to_published(params), metadata)


def _card(path: pathlib.Path, params: dict | None) -> Card | None:
  """The card in the file, else the card beside it, else one from timm's names."""
  with arrays.reading(path, ".safetensors"):
    names, metadata = _header(path)
    if CARD in metadata:
      return card.of_values(json.loads(metadata[CARD]), path)
  if beside := card.read_beside(path):
    return beside
  library = _named_by(names)
  if not params or HEADS[0] in metadata or not library:
    return None
  return library.card(path, params, names)


def _notes(params: dict, known: Card) -> list[str]:
  library = _written_names()
  try:
    return library.notes(params, known)
  except ValueError as error:
    return [f"{library.name} cannot read it: {error}. Its arrays have the published names."]


def _named_by(names: Iterable[str]) -> ArrayNames | None:
  """The library whose names these are."""
  return next((each for each in ARRAY_NAMES.values() if each.recognised(names)), None)


def _written_names() -> ArrayNames:
  """The library whose names are written."""
  return next(iter(ARRAY_NAMES.values()))


def load_arrays(path: pathlib.Path) -> dict[str, np.ndarray]:
  """Reads {name: array} under the file's own names.

  Raises:
    ValueError: the file is not safetensors, or its arrays fail `arrays.checked`.
  """
  with arrays.reading(path, "safetensors"):
    return arrays.checked(_arrays(path))


def load_raw(path: pathlib.Path, wanted: Callable[[str], bool]) -> dict[str, np.ndarray]:
  """Reads the arrays whose names are `wanted`, as they are stored; names keep their prefixes.

  Raises:
    ValueError: the file is not safetensors, or an array holds no floating-point numbers.
  """
  with arrays.reading(path, "safetensors"), _opened(path) as file:
    names = filter(wanted, file.keys())
    return _values(file, {name: name for name in names})


def names_in(path: pathlib.Path) -> list[str]:
  """The names of a file's arrays; reads none of them.

  Raises:
    ValueError: the file is not safetensors.
  """
  with arrays.reading(path, "safetensors"), _opened(path) as file:
    return list(file.keys())


def header_bytes(path: pathlib.Path) -> int:
  """The bytes that a file says its header has, without the eight that say it."""
  with path.open("rb") as file:
    return int.from_bytes(file.read(8), "little")


def has_card(path: pathlib.Path) -> bool:
  """Whether this project wrote a file, or a card beside it, so that no other file describes it."""
  if is_file(card.path_beside(path)):
    return True
  try:
    with arrays.reading(path, "safetensors"):
      return _ours(_header(path)[1])
  except ValueError:  # reading the arrays will raise the same error
    return False


def library_of(path: pathlib.Path) -> str:
  """The name of the library whose names a file's arrays have, as in `ArrayNames`; "": of none."""
  try:
    with arrays.reading(path, "safetensors"):
      library = _named_by(_header(path)[0])
  except ValueError:  # reading the arrays will raise the same error
    return ""
  return library.name if library else ""


def save_arrays(path: pathlib.Path, flat: dict[str, np.ndarray], metadata: dict[str, str]):
  """Writes {name: array}, with the metadata that PyTorch's readers need and `metadata`."""
  contiguous = {name: np.ascontiguousarray(array) for name, array in flat.items()}
  with atomic_write(path) as partial:
    with open(partial, "wb") as file:
      usual = os.fstat(file.fileno()).st_mode
    safetensors.numpy.save_file(contiguous, partial, metadata={"format": "pt"} | metadata)
    os.chmod(partial, usual)  # the library makes files that only their owner can read


def _header(path) -> tuple[list[str], dict[str, str]]:
  """The names of the arrays without their prefix, and the metadata."""
  with _opened(path) as file:
    return list(prefixes.renamed(file.keys())), file.metadata() or {}


def _ours(metadata: dict[str, str]) -> bool:
  return CARD in metadata or HEADS[0] in metadata


def _image_size(metadata: dict[str, str], path: pathlib.Path) -> Size:
  """The size of the images that a file of this project is for; 0: unknown."""
  if CARD not in metadata:
    return 0
  return card.of_values(json.loads(metadata[CARD]), path).image_size


def _heads_in(params: dict) -> Heads:
  """The attention heads of parameters; 0: there is no such attention."""
  flat = flatten(params)

  def first(pattern: str) -> int:
    return next((x.shape[1] for name, x in flat.items() if re.fullmatch(pattern, name)), 0)

  return Heads(first(r"(?!MAPHead).*query/kernel"), first(r"MAPHead_0/.*query/kernel"))


def _heads(metadata) -> Heads:
  return Heads(*(_number(metadata.get(key, "0")) for key in HEADS))


def _number(text: str) -> int:
  if not text.isdecimal() or not int(text[:9]) <= MAX_HEADS:
    raise ValueError(f"its metadata says {text[:20]!r} attention heads")
  return int(text)


def _arrays(path) -> dict[str, np.ndarray]:
  """Reads the arrays of a file under their names without prefix; checks their types first."""
  with _opened(path) as file:
    names = prefixes.renamed(file.keys())
    if words := prefixes.words(file.keys(), names):
      _log.warning(words)
    if library := _named_by(names):
      names = {new: x for new, x in names.items() if not re.fullmatch(library.tables, new)}
    return _values(file, names)


def _values(file, names: dict[str, str]) -> dict[str, np.ndarray]:
  """The arrays {new name: name in the file}; checks their number and types before it reads one."""
  arrays.check_count(len(names))
  for name in names.values():
    kind = file.get_slice(name).get_dtype()
    if kind not in DTYPES:
      raise ValueError(f"{name} holds {kind}; weights are floating-point numbers")
  return {name: file.get_tensor(stored) for name, stored in names.items()}


@contextlib.contextmanager
def _opened(path) -> Iterator[safetensors.safe_open]:
  """Opens the file after a check of the size that it declares for its header."""
  arrays.check_bytes(path)
  size = header_bytes(path)
  if size > MAX_HEADER:
    raise ValueError(f"its header has {size:,} bytes; the most is {MAX_HEADER:,}")
  with safetensors.safe_open(path, framework="numpy") as file:
    yield file


SAFETENSORS = WeightFormat(
  words=".safetensors", suffix=".safetensors", load=_load, save=_save, card=_card, notes=_notes
)
