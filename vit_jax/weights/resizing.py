"""Resizes position embeddings, and biases of offsets, to another grid of patches.

Each library of weights has its own rule:

- "bilinear_aligned": the published code of the paper (Section 3.2), and big_vision: bilinear, with
  the corners of both grids at the same places.
- "bicubic": Transformers' ViT, MAE and DINOv2: `torch.nn.functional.interpolate(mode="bicubic",
  align_corners=False)`, which has a = -0.75 and repeats the border.
- "bicubic_antialiased": timm, and DINOv2 with registers: the same with `antialias=True`, which has
  a = -0.5 and a wider kernel where the grid becomes smaller.
- "bicubic_offset": DINOv2's own code without registers: "bicubic", with the places of a grid that
  is a tenth of a patch larger.

Embeddings and biases of offsets are resized linearly, as in SAM and in Transformers' BEiT; with
aligned corners for "bilinear_aligned". BEiT's biases, for "bicubic_antialiased", as in timm: see
`geometric_weights`.
"""

import math

import numpy as np

from vit_jax.config import POSITION_RESIZING

PUBLISHED = POSITION_RESIZING[0]
OFFSET = 0.1  # patches


def resize_table(
  table: np.ndarray, old: tuple[int, int], new: tuple[int, int], *, before: int, rule: str
) -> np.ndarray:
  """Interpolates 1-D position embeddings over the places of their patches in the image.

  Entries before the patches stay unchanged.

  Args:
    table: (1, before + N, D); N = rows * columns of `old`.
    old, new: rows and columns of patches.
    before: number of entries for tokens before the patches, such as the class token.
    rule: one of those above.

  Returns:
    (1, before + M, D), in the dtype of `table`.
  """
  tokens = table[:, :before]
  grid = table[0, before:].reshape(*old, -1)
  rows, columns = (resizing_matrix(o, n, rule) for o, n in zip(old, new, strict=True))
  grid = np.einsum("ro,cp,opd->rcd", rows, columns, grid, optimize=True).astype(table.dtype)
  return np.concatenate([tokens, grid.reshape(1, new[0] * new[1], -1)], axis=1)


def resize_axis(table: np.ndarray, new: int, rule: str) -> np.ndarray:
  """The same along one axis, for 2-D position embeddings: (rows or columns, D/2)."""
  return (resizing_matrix(len(table), new, rule) @ table).astype(table.dtype)


def resize_biases(
  table: np.ndarray, old: tuple[int, int], new: tuple[int, int], rule: str
) -> np.ndarray:
  """Interpolates biases of offsets in rows and columns; those of a class token, last, stay.

  Args:
    table: (offsets + extra, heads); offsets = (2 rows - 1) (2 columns - 1) of `old`.
    old, new: rows and columns of patches.
    rule: one of those above.

  Returns:
    (new offsets + extra, heads), in the dtype of `table`.
  """
  before, after = offsets(old), offsets(new)
  count = math.prod(before)
  if rule == "bicubic_antialiased":
    rows, columns = (geometric_weights(o, n) for o, n in zip(before, after, strict=True))
  else:
    rows, columns = (linear_weights(o, n, rule) for o, n in zip(before, after, strict=True))
  grid = table[:count].reshape(*before, -1)
  grid = np.einsum("ro,cp,oph->rch", rows, columns, grid, optimize=True).astype(table.dtype)
  return np.concatenate([grid.reshape(-1, table.shape[-1]), table[count:]])


def resize_offsets(table: np.ndarray, new: int, rule: str) -> np.ndarray:
  """Interpolates embeddings of the offsets along an axis, (old, D_h) -> (new, D_h)."""
  return (linear_weights(len(table), new, rule) @ table).astype(table.dtype)


def resizing_matrix(old: int, new: int, rule: str) -> np.ndarray:
  """The weight of each old place in each new one, (new, old) float64; every row adds up to 1."""
  if rule == PUBLISHED:
    return _between(np.arange(old), np.linspace(0, old - 1, new))
  scale = old / (new + OFFSET * (rule == "bicubic_offset"))
  centres = (np.arange(new) + 0.5) * scale - 0.5
  if rule == "bicubic_antialiased":
    distances = (np.arange(old) - centres[:, None]) / max(scale, 1)
    weights = _cubic(distances, -0.5)
    return weights / weights.sum(axis=1, keepdims=True)
  result = np.zeros((new, old))
  first = np.floor(centres).astype(int)
  for place in (first - 1, first, first + 1, first + 2):
    np.add.at(result, (np.arange(new), place.clip(0, old - 1)), _cubic(centres - place, -0.75))
  return result


def _cubic(x: np.ndarray, a: float) -> np.ndarray:
  """The kernel of cubic convolution.

  Source: Keys, "Cubic convolution interpolation for digital image processing", 1981, with a free.
  """
  x = np.abs(x)
  near = ((a + 2) * x - (a + 3)) * x**2 + 1
  far = a * (((x - 5) * x + 8) * x - 4)
  return np.where(x <= 1, near, np.where(x < 2, far, 0))


def linear_weights(old: int, new: int, rule: str) -> np.ndarray:
  """The weight of each of `old` offsets in each of `new`, (new, old): linear interpolation.

  Args:
    old, new: numbers of offsets along an axis, 2 n - 1 for n patches.
    rule: with "bilinear_aligned" the farthest offsets stay the farthest; otherwise as in
      `torch.nn.functional.interpolate(align_corners=False)`.
  """
  scale = old / new
  if rule == PUBLISHED:
    scale = (old - 1) / max(new - 1, 1)
  wanted = (np.arange(new) - new // 2) * scale
  return _between(np.arange(old) - old // 2, wanted)


def geometric_weights(old: int, new: int) -> np.ndarray:
  """As `linear_weights`, where near offsets stay and far ones move: 1, 1 + q, 1 + q + q^2, ...

  With this q, from 1.01 to 1.5, the farthest old offset becomes the farthest new one.

  Source: BEiT's code for fine-tuning, and `resize_rel_pos_bias_table` of timm, which is linear
  between these places where BEiT's code is cubic.
  """
  count, farthest = old // 2, new // 2
  distances = np.cumsum(_growth(count, farthest) ** np.arange(count))
  places = np.concatenate([-distances[::-1], [0], distances])
  return _between(places, np.arange(-farthest, farthest + 1))


def _growth(count: int, farthest: int) -> float:
  """The q, as exact as in these sources, with which `count` terms add up to `farthest`."""
  low, high = 1.01, 1.5
  while high - low > 1e-6:
    q = (low + high) / 2
    if np.sum(q ** np.arange(count)) > farthest:
      high = q
    else:
      low = q
  return q


def _between(places: np.ndarray, wanted: np.ndarray) -> np.ndarray:
  """The weight of each place in each wanted one; those outside get the value at the border."""
  return np.stack([np.interp(wanted, places, one) for one in np.eye(len(places))], axis=1)


def offsets(grid: tuple[int, int]) -> tuple[int, int]:
  """The number of offsets between rows, and between columns, of a grid."""
  rows, columns = grid
  return 2 * rows - 1, 2 * columns - 1
