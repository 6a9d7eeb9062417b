"""Position embeddings in weights: those for another grid of patches, and fixed ones.

A table of position embeddings has a vector per patch (1-D), or per row and column (2-D); others
have one per offset between two patches (relative).

Fixed ones are computed here, and read as a table by other libraries. So a file holds the table,
and a reader of the arrays alone computes the same; the card says that it is fixed.
"""

import dataclasses
import math
import re

import numpy as np

from vit_jax.config import sides
from vit_jax.config.model import FIXED_POSITIONS
from vit_jax.models.recognition import module_of, patch_grid
from vit_jax.weights import resizing
from vit_jax.weights.card import Card

ALL = re.compile(r".*\bpos_embedding(_row|_column|_relative|_bias|_rows|_columns)?")
_TABLES = re.compile(
  r"(.*posembed_(?:input|shared)/)(pos_embedding|pos_embedding_row|pos_embedding_column)"
)
_BIASES = re.compile(r".*/pos_embedding_bias")
_OFFSETS = re.compile(r".*/pos_embedding_(rows|columns)")
_MODULE = "posembed_input"
_TABLE = "pos_embedding"


@dataclasses.dataclass(frozen=True)
class Grids:
  """Rows and columns of patches: those that the model sees, and the likely ones of the weights.

  Attributes:
    new: those of the model.
    likely: those of the weights, if they hold embeddings for so many patches; otherwise, and with
      None, a square.
  """

  new: tuple[int, int]
  likely: tuple[int, int] | None = None


def can_resize(name: str, array: np.ndarray, target, grids: Grids) -> bool:
  """Whether an array of another shape than `target` is for a grid that is known, and no more."""
  if _TABLES.fullmatch(name):
    return _without_places(array.shape) == _without_places(target.shape)
  if array.shape[1:] != target.shape[1:]:
    return False
  if _OFFSETS.fullmatch(name):
    return len(array) % 2 == 1
  return bool(_BIASES.fullmatch(name) and _grid_of_biases(array, target, grids))


def fit_as_they_are(params: dict, name: str, target, grids: Grids) -> bool:
  """Whether an array with the shape of `target` is also for the model's rows and columns."""
  if _BIASES.fullmatch(name):
    return _grid_of_biases(target, target, grids) in (None, grids.new)
  if not _TABLES.fullmatch(name) or not name.endswith("/pos_embedding"):
    return True
  before = target.shape[1] - math.prod(grids.new)
  return patch_grid(params, before, grids.likely) in (None, grids.new)


def resized(
  params: dict, name: str, array: np.ndarray, target, grids: Grids, rule: str
) -> tuple[np.ndarray, str]:
  """An array of `params` that `can_resize`, in the shape of `target`, and the change as text.

  Raises:
    ValueError: its grid is not known.
  """
  rows, columns = grids.new
  if _OFFSETS.fullmatch(name):
    change = f"{len(array)} -> {len(target)} offsets"
    return resizing.resize_offsets(array, len(target), rule), change
  if _BIASES.fullmatch(name):
    old = _grid_of_biases(array, target, grids)
    array = resizing.resize_biases(array, old, grids.new, rule)
  elif name.endswith("pos_embedding"):
    before = target.shape[1] - rows * columns
    old = patch_grid(params, before, grids.likely)
    if not old:
      raise ValueError(
        f"there are position embeddings for {array.shape[1] - before} patches, which is no square; "
        "give the size of the images that they are for"
      )
    array = resizing.resize_table(array, old, grids.new, before=before, rule=rule)
  else:
    old = patch_grid(params, 0)
    array = resizing.resize_axis(array, rows if name.endswith("row") else columns, rule)
  return array, f"{old[0]} x {old[1]} -> {rows} x {columns} patches"


def _without_places(shape: tuple[int, ...]) -> tuple:
  """The shape of a table of position embeddings without the axis of the places."""
  return *shape[:-2], shape[-1:]


def _grid_of_biases(array, target, grids: Grids) -> tuple[int, int] | None:
  """Rows and columns that biases are for: the likely grid or a square; None if neither fits."""
  beside = len(target) - math.prod(resizing.offsets(grids.new))  # biases for a class token
  offsets = len(array) - beside
  side = (math.isqrt(max(offsets, 0)) + 1) // 2
  known = [
    old
    for old in (grids.likely, (side, side))
    if old and math.prod(resizing.offsets(old)) == offsets
  ]
  return next(iter(known), None)


def with_fixed_positions(params: dict, card: Card) -> dict:
  """The parameters with the table of fixed position embeddings, if the card's model has them.

  Raises:
    ValueError: the size of the images is not known.
  """
  positions = card.model.positions
  if positions not in FIXED_POSITIONS:
    return params
  if not card.image_size:
    raise ValueError("its fixed position embeddings need the size of its images; give it")
  module = module_of(params, card.model)
  grid = module.grid(*sides(card.image_size))
  table = np.asarray(module.position_tables({"Transformer": {}}, grid)["stem"])
  table = np.pad(table, ((module.tokens_before(), 0), (0, 0)))[None]
  encoder = params["Transformer"] | {_MODULE: {_TABLE: table}}
  return params | {"Transformer": encoder}


def without_table(params: dict, card: Card | None) -> dict:
  """The parameters without the table, if the card says that it is fixed.

  Raises:
    ValueError: the table is another one.
  """
  if not card or card.model.positions not in FIXED_POSITIONS:
    return params
  if not is_fixed(params, card):
    raise ValueError(
      f"its card says positions={card.model.positions!r}, and it holds other position embeddings"
    )
  return _bare(params)


def is_fixed(params: dict, card: Card) -> bool:
  """Whether a table in the parameters is that of the card's model, whose positions are fixed."""
  if _MODULE not in params["Transformer"]:
    return True
  computed = _table_in(with_fixed_positions(_bare(params), card))
  stored = _table_in(params)
  return computed.shape == stored.shape and np.allclose(computed, stored, atol=1e-5)


def _bare(params: dict) -> dict:
  """The parameters without the table at the stem."""
  encoder = {name: x for name, x in params["Transformer"].items() if name != _MODULE}
  return params | {"Transformer": encoder}


def _table_in(params: dict) -> np.ndarray:
  return np.asarray(params["Transformer"][_MODULE][_TABLE])
