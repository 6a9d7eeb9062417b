"""Position embeddings for another grid of patches, by the rule of the weights' own library.

- "bilinear_aligned": the published code of the paper (Section 3.2), and big_vision: bilinear, the
  corners of both grids at the same places.
- "bicubic": Transformers' ViT, MAE and DINOv2: `torch.nn.functional.interpolate(mode="bicubic",
  align_corners=False)`, which has a = -0.75 and repeats the border.
- "bicubic_antialiased": timm, and DINOv2 with registers: the same with `antialias=True`, which has
  a = -0.5 and a wider kernel where the grid becomes smaller.
- "bicubic_offset": DINOv2's own code without registers: "bicubic", but the places are those of a
  grid that is a tenth of a patch larger.
"""

import numpy as np
import scipy.ndimage

from vit_jax.config import POSITION_RESIZING

PUBLISHED = POSITION_RESIZING[0]
OFFSET = 0.1  # patches


def resize_table(
  table: np.ndarray, old: tuple[int, int], new: tuple[int, int], *, before: int, rule: str
) -> np.ndarray:
  """Interpolates 1-D position embeddings over the places of their patches in the image.

  Those before the patches stay unchanged.

  Args:
    table: (1, before + N, D); N = rows * columns of `old`.
    old, new: rows and columns of patches.
    before: entries of tokens before the patches, such as the class token.
    rule: one of those above.

  Returns:
    (1, before + M, D), in the dtype of `table`.
  """
  tokens, grid = table[:, :before], table[0, before:].reshape(*old, -1)
  if rule == PUBLISHED:
    grid = _zoom(grid, (*new, table.shape[-1]))
  else:
    rows, columns = (_matrix(o, n, rule) for o, n in zip(old, new, strict=True))
    grid = np.einsum("ro,cp,opd->rcd", rows, columns, grid, optimize=True).astype(table.dtype)
  return np.concatenate([tokens, grid.reshape(1, new[0] * new[1], -1)], axis=1)


def resize_axis(table: np.ndarray, new: int, rule: str) -> np.ndarray:
  """The same along one axis, for 2-D position embeddings: (rows or columns, D/2)."""
  if rule == PUBLISHED:
    return _zoom(table, (new, table.shape[-1]))
  return (_matrix(len(table), new, rule) @ table).astype(table.dtype)


def _zoom(array, shape):
  factors = [n / o for n, o in zip(shape, array.shape, strict=True)]
  # "nearest", because rounding may place the last entry slightly outside the table.
  zoomed = scipy.ndimage.zoom(array.astype(np.float64), factors, order=1, mode="nearest")
  return zoomed.astype(array.dtype)


def _matrix(old: int, new: int, rule: str) -> np.ndarray:
  """What each new place takes from each old one, (new, old) float64; every row has the sum 1."""
  scale = old / (new + OFFSET * (rule == "bicubic_offset"))
  centres = (np.arange(new) + 0.5) * scale - 0.5
  if rule == "bicubic_antialiased":
    distances = (np.arange(old) - centres[:, None]) / max(scale, 1)
    shares = _cubic(distances, -0.5)
    return shares / shares.sum(axis=1, keepdims=True)
  result, first = np.zeros((new, old)), np.floor(centres).astype(int)
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
