"""Translates between the parameter names of published files and those of our tree.

Our names are those of the published Vision Transformers, but for the head and the GroupNorms of
ResNets. Published files exist in several spellings; `from_published` takes all of them.
"""

import re

import numpy as np

from vit_jax.models.stacking import unstack_blocks
from vit_jax.storage.tree import flatten, nest
from vit_jax.weights import arrays
from vit_jax.weights.translation import OURS, SAME, THEIRS, Layout, Row, Table

STATE = ("chrono/", "extra/")  # of big_vision's training program
BESIDE_TEXTS = "params/img/"  # of big_vision's encoder of images beside one of texts
# {prefix of the parameters: prefixes of other arrays, which are left out}. The others are the state
# of training and of the optimizer, and a text tower.
PREFIXES = {
  "opt/target/": ("opt/state/", *STATE),
  BESIDE_TEXTS: ("params/", "opt/", *STATE),
  "params/": ("opt/", *STATE),
}
STACKED_BLOCK = r"(Transformer/encoderblock(?:_\d+)?/)"
LINEN = (
  ("MultiHeadDotProductAttention_0/", "MultiHeadDotProductAttention_1/"),
  ("LayerNorm_1/", "LayerNorm_2/"),
  ("MlpBlock_0/", "MlpBlock_3/"),
)
POSITIONS = "Transformer/posembed_input/pos_embedding"
_HEAD = Layout(lambda x: x[None, None], lambda x, heads: x.reshape(x.shape[-2:]))
_UNIT = "resnet/block{1}/unit{01}"
_CONVOLUTION = "standardized_conv2d/kernel"


def _norm(name: str) -> tuple[Row, Row]:
  return (f"{name}/scale", f"{name}/gamma", SAME), (f"{name}/bias", f"{name}/beta", SAME)


def _convolution(layer: str) -> Row:
  name = f"{layer}/{_CONVOLUTION}"
  return name, name, SAME


_BIT = Table(
  _convolution("resnet/root_block"),
  *(_convolution(f"{_UNIT}/{layer}") for layer in ("a", "b", "c", "a/proj")),
  *_norm(f"{_UNIT}/a/group_norm"),
  *_norm(f"{_UNIT}/b/group_norm"),
  *_norm(f"{_UNIT}/c/group_norm"),
  *_norm("resnet/group_norm"),
  ("head/kernel", "resnet/head/conv2d/kernel", _HEAD),
  ("head/bias", "resnet/head/conv2d/bias", SAME),
)


def from_published(flat: dict[str, np.ndarray]) -> dict:
  """Makes our tree, blocks unstacked, from {"a/b": array} in any of the known spellings.

  - a prefix opt/target/, params/img/ or params/; a text tower and the state of training beside it
    are left out;
  - bfloat16 stored as a type without name;
  - Linen's numbers within blocks (LayerNorm_1 for LayerNorm_2, ...), stacked blocks;
  - position embeddings at the top level without an entry for the class token: it becomes zeros;
  - GroupNorm arrays (1, 1, 1, C);
  - BiT: numbered standardized_conv2d_NN, gamma and beta, the head as a 1 x 1 convolution.

  Raises:
    ValueError: two names mean the same parameter, a shape does not suit its name, or the arrays
      fail `arrays.checked`.
  """
  flat = {name: _named_type(array) for name, array in _without_prefix(flat).items()}
  flat = arrays.checked(flat)
  linen = any(re.match(STACKED_BLOCK + "MlpBlock_0/", name) for name in flat)
  renamed = {}
  for name, array in flat.items():
    spelled, array = _spelled(name, array, linen=linen)
    translated = {spelled: array}
    if _BIT.rows_of(spelled, THEIRS):
      translated = _BIT.ours(translated)
    for ours in translated.keys() & renamed:
      raise ValueError(f"two arrays mean {ours}; one of them is called {name}")
    renamed |= translated
  if "pos_embedding" in renamed:
    if POSITIONS in renamed:
      raise ValueError(f"two arrays mean {POSITIONS}; one of them is called pos_embedding")
    renamed[POSITIONS] = with_tokens(renamed.pop("pos_embedding"), int("cls" in renamed))
  return unstack_blocks(nest(renamed))


def to_published(params: dict) -> dict[str, np.ndarray]:
  """Makes {"a/b": array} from our tree, blocks unstacked, in the spelling that all readers know."""
  flat = flatten(unstack_blocks(params))
  if _BIT.lacking(flat, OURS):
    return flat
  return _BIT.theirs(flat)


def _without_prefix(flat):
  for prefix, beside in PREFIXES.items():
    inside = {k.removeprefix(prefix): v for k, v in flat.items() if k.startswith(prefix)}
    if inside:
      others = [k for k in flat if not k.startswith((prefix, *beside))]
      if others:
        raise ValueError(f"some names begin with {prefix} and others do not, such as {others[0]}")
      return inside
  return flat


def _named_type(array):
  """Restores bfloat16, which NumPy writes as raw pairs of bytes."""
  if array.dtype == np.dtype("V2"):  # false for structured types of two bytes
    import ml_dtypes

    return array.view(ml_dtypes.bfloat16)
  return array


def _spelled(name, array, *, linen):
  """The usual spelling of a name, and its array in the usual shape."""
  block = re.match(STACKED_BLOCK, name)
  if linen and block:
    rest = name.removeprefix(block[0])
    for theirs, ours in LINEN:
      if rest.startswith(theirs):
        return block[0] + ours + rest.removeprefix(theirs), array
  name = re.sub(r"standardized_conv2d_\d+", "standardized_conv2d", name)
  norm = re.search(r"(gn\w+|group_norm)/(scale|bias|gamma|beta)$", name)
  if norm and array.ndim == 4 and array.shape[:3] == (1, 1, 1):
    array = array[0, 0, 0]
  return name, array


def with_tokens(positions, before: int):
  """Adds zeros for the tokens before the patches to embeddings for the patches alone."""
  if positions.ndim != 3:
    return positions
  return np.pad(positions, ((0, 0), (before, 0), (0, 0)))
