"""Finds out which tokens the position embeddings of a file are for; their number is ambiguous.

With T tokens before the patches, such as the class token, N position embeddings are for T tokens
and N - T patches or, in some of timm's models, for N patches. Without a size of images, they are
taken as square.
"""

import logging
import math

import numpy as np

from vit_jax.config import Size, sides
from vit_jax.models.recognition import module_of

_log = logging.getLogger(__name__)
_ENCODER = "Transformer"
_MODULE = "posembed_input"
_TABLE = "pos_embedding"
WIDEST = 2  # largest aspect ratio of images that causes a warning


def for_all_tokens(params: dict, size: Size, *, sure: bool = False) -> dict:
  """Adds position embeddings of zeros for the tokens before the patches, if they have none.

  Parameters with embeddings for all tokens, or without embeddings, stay as they are.

  Args:
    params: of a ViT, or of another model.
    size: of the images that the embeddings are for, pixels; 0: unknown.
    sure: whether the images are known to be square. Otherwise a warning names the other
      interpretation.

  Raises:
    ValueError: the number of embeddings has several meanings, or none.
  """
  table = params.get(_ENCODER, {}).get(_MODULE, {}).get(_TABLE)
  if table is None or np.ndim(table) != 3:
    return params
  module = module_of(params)
  before = module.tokens_before()
  patches = 0
  if size:
    patches = math.prod(module.grid(*sides(size)))
  if _of_patches(table.shape[1], before, patches, sure=sure) == table.shape[1]:
    table = np.pad(table, ((0, 0), (before, 0), (0, 0)))
  encoder = params[_ENCODER] | {_MODULE: {_TABLE: table}}
  return params | {_ENCODER: encoder}


def with_registers(table: np.ndarray, registers: int) -> np.ndarray:
  """A table for class token and patches, with zeros for the registers between them added.

  Args:
    table: (1, 1 + N, D).
    registers: how many.

  Returns:
    (1, 1 + registers + N, D).
  """
  zeros = np.zeros((1, registers, table.shape[-1]), table.dtype)
  return np.concatenate([table[:, :1], zeros, table[:, 1:]], axis=1)


def _of_patches(count: int, before: int, patches: int, *, sure: bool) -> int:
  """The number of embeddings that are for patches: `count`, or all but `before`.

  Args:
    count: of the embeddings.
    before: tokens before the patches.
    patches: of the images that the file is for; 0: unknown.
    sure: as in `for_all_tokens`.
  """
  readings = {count, count - before}
  if patches in readings:
    return patches
  squares = sorted(number for number in readings if number > 0 and _is_square(number))
  if not squares:
    raise ValueError(
      f"its {count} position embeddings are of no square grid of patches, with or without tokens "
      "before them; put timm's config.json beside the file, with the size of its images (img_size)"
    )
  if len(squares) > 1:
    raise ValueError(
      f"its {count} position embeddings may be of that many patches or, behind {_tokens(before)}, "
      f"of {squares[0]}"
    )
  if squares[0] == count > before > 0 and not sure:
    _other_reading(count, before, patches)
  return squares[0]


def _other_reading(count: int, before: int, patches: int):
  """Warns that embeddings for patches alone may also be for all tokens of wider images.

  Raises:
    ValueError: the images that the file is for have another number of patches.
  """
  side = math.isqrt(count)
  other = _grid(count - before)
  if other[1] > WIDEST * other[0]:
    return
  words = (
    f"its {count} position embeddings may be of {side} x {side} patches or, behind "
    f"{_tokens(before)}, of {other[0]} x {other[1]} patches of images that are not square"
  )
  if patches:
    raise ValueError(f"{words}; its config.json says {patches} patches, which is neither")
  _log.warning(
    "The file is ambiguous: %s. Taken as %d x %d; timm's config.json beside the file would tell.",
    words,
    side,
    side,
  )


def _tokens(count: int) -> str:
  if count == 1:
    return "the class token"
  return f"{count} tokens"


def _grid(number: int) -> tuple[int, int]:
  """The most nearly square grid of this many patches, the shorter side first."""
  shorter = max(n for n in range(1, math.isqrt(number) + 1) if number % n == 0)
  return shorter, number // shorter


def _is_square(number: int) -> bool:
  return math.isqrt(number) ** 2 == number
