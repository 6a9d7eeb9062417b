"""Fixed position embeddings in files: other libraries read a table, this project computes it.

A file holds the table, so that a reader of the arrays alone computes the same; the card says that
the table is fixed.
"""

import numpy as np

from vit_jax.config import sides
from vit_jax.config.model import FIXED_POSITIONS
from vit_jax.models.recognition import module_of
from vit_jax.weights.card import Card

_MODULE = "posembed_input"
_TABLE = "pos_embedding"


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
  if _MODULE not in params.get("Transformer", {}):
    return params
  encoder = {name: x for name, x in params["Transformer"].items() if name != _MODULE}
  bare = params | {"Transformer": encoder}
  computed = _table_in(with_fixed_positions(bare, card))
  stored = _table_in(params)
  if computed.shape != stored.shape or not np.allclose(computed, stored, atol=1e-5):
    raise ValueError(
      f"its card says positions={card.model.positions!r}, and it holds other position embeddings"
    )
  return bare


def _table_in(params: dict) -> np.ndarray:
  return np.asarray(params["Transformer"][_MODULE][_TABLE])
