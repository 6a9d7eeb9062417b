"""Resizes position embeddings to another grid of patches (Section 3.2)."""

import numpy as np
import scipy.ndimage


def resize_table(
  table: np.ndarray, old: tuple[int, int], new: tuple[int, int], *, class_token: bool
) -> np.ndarray:
  """Interpolates 1-D position embeddings over the places of their patches in the image.

  Bilinear with aligned corners, as in the published code; the class token's entry stays unchanged.

  Args:
    table: (1, N, D), or (1, 1 + N, D) with a class token; N = rows * columns of `old`.
    old, new: rows and columns of patches.
    class_token: whether the first entry is the class token's.

  Returns:
    (1, M, D) or (1, 1 + M, D), in the dtype of `table`.
  """
  token, patches = table[:, : int(class_token)], table[0, int(class_token) :]
  grid = _zoom(patches.reshape(*old, -1), (*new, table.shape[-1]))
  return np.concatenate([token, grid.reshape(1, new[0] * new[1], -1)], axis=1)


def resize_axis(table: np.ndarray, new: int) -> np.ndarray:
  """The same along one axis, for 2-D position embeddings: (rows or columns, D/2)."""
  return _zoom(table, (new, table.shape[-1]))


def _zoom(array, shape):
  factors = [n / o for n, o in zip(shape, array.shape, strict=True)]
  # "nearest", because rounding may place the last entry slightly outside the table.
  zoomed = scipy.ndimage.zoom(array.astype(np.float64), factors, order=1, mode="nearest")
  return zoomed.astype(array.dtype)
