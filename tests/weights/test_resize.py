"""Compares resized position embeddings with scipy and with a plain float64 formula."""

import numpy as np
import pytest
import scipy.ndimage

from vit_jax.weights.fit import resize_axis, resize_table


def bilinear(grid, new):
  """Bilinear interpolation with aligned corners, one place at a time, in float64."""
  grid = np.float64(grid)
  result = np.zeros((*new, grid.shape[-1]))
  for i in range(new[0]):
    for j in range(new[1]):
      places = []
      for index, size, old in ((i, new[0], grid.shape[0]), (j, new[1], grid.shape[1])):
        place = index * (old - 1) / (size - 1) if size > 1 else 0.0
        low = min(int(place), old - 1)
        places.append((low, min(low + 1, old - 1), place - low))
      (top, bottom, down), (left, right, along) = places
      upper = (1 - along) * grid[top, left] + along * grid[top, right]
      lower = (1 - along) * grid[bottom, left] + along * grid[bottom, right]
      result[i, j] = (1 - down) * upper + down * lower
  return result


@pytest.mark.parametrize("before", [1, 0, 5])
@pytest.mark.parametrize(
  ("old", "new"),
  [
    ((14, 14), (32, 32)),  # 224 / 16 to 512 / 16
    ((16, 16), (37, 37)),  # 224 / 14 to 518 / 14
    ((14, 14), (24, 24)),  # 224 / 16 to 384 / 16
    ((14, 14), (7, 7)),
    ((3, 5), (7, 4)),
    ((1, 1), (3, 2)),
    ((4, 4), (1, 1)),
    ((6, 6), (6, 6)),
  ],
)
def test_against_scipy_and_a_plain_formula(old, new, before):
  rng = np.random.default_rng(0)
  table = rng.standard_normal((1, before + old[0] * old[1], 8)).astype(np.float32)
  resized = resize_table(table, old, new, before=before)
  assert resized.dtype == np.float32
  assert resized.shape == (1, before + new[0] * new[1], 8)
  np.testing.assert_array_equal(resized[:, :before], table[:, :before])
  grid = table[0, before:].reshape(*old, 8)
  got = resized[0, before:].reshape(*new, 8)
  np.testing.assert_allclose(got, bilinear(grid, new), atol=1e-6, rtol=0)
  if min(*old, *new) > 1:
    zoomed = scipy.ndimage.zoom(grid, (new[0] / old[0], new[1] / old[1], 1), order=1)
    np.testing.assert_allclose(got, zoomed, atol=1e-6, rtol=0)


def test_the_corners_stay():
  table = np.random.default_rng(0).standard_normal((1, 14 * 14, 4)).astype(np.float32)
  old, new = table.reshape(14, 14, 4), resize_table(table, (14, 14), (37, 23), before=0)
  new = new.reshape(37, 23, 4)
  for i in (0, -1):
    for j in (0, -1):
      np.testing.assert_array_equal(new[i, j], old[i, j])


def test_one_axis_is_a_column_of_the_table():
  rows = np.random.default_rng(0).standard_normal((14, 6)).astype(np.float32)
  as_table = resize_table(rows[None], (14, 1), (32, 1), before=0)
  np.testing.assert_array_equal(resize_axis(rows, 32), as_table[0])
