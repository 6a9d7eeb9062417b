"""Compares resized position embeddings with scipy, torch and plain float64 formulas."""

import numpy as np
import pytest
import scipy.ndimage

from vit_jax.config import POSITION_RESIZING
from vit_jax.weights.fit import PUBLISHED, resize_axis, resize_table


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
  resized = resize_table(table, old, new, before=before, rule=PUBLISHED)
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
  old, new = (
    table.reshape(14, 14, 4),
    resize_table(table, (14, 14), (37, 23), before=0, rule=PUBLISHED),
  )
  new = new.reshape(37, 23, 4)
  for i in (0, -1):
    for j in (0, -1):
      np.testing.assert_array_equal(new[i, j], old[i, j])


def test_one_axis_is_a_column_of_the_table():
  rows = np.random.default_rng(0).standard_normal((14, 6)).astype(np.float32)
  as_table = resize_table(rows[None], (14, 1), (32, 1), before=0, rule=PUBLISHED)
  np.testing.assert_array_equal(resize_axis(rows, 32, PUBLISHED), as_table[0])


RULES = POSITION_RESIZING[1:]
GRIDS = [
  ((37, 37), (16, 16)),  # DINOv2: 518 / 14 to 224 / 14
  ((14, 14), (24, 24)),
  ((14, 14), (7, 7)),
  ((3, 5), (7, 4)),
  ((1, 1), (3, 2)),
  ((4, 4), (1, 1)),
  ((9, 2), (2, 9)),
]


def keys(x, a):
  """The kernel of Keys, 1981, equation 4 with a free."""
  x = abs(x)
  if x < 1:
    return (a + 2) * x**3 - (a + 3) * x**2 + 1
  return a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a if x < 2 else 0.0


def line(values, new, rule):
  """One axis, one place at a time, in float64: (old, D) -> (new, D)."""
  old, result = len(values), []
  step = old / (new + 0.1) if rule == "bicubic_offset" else old / new
  for i in range(new):
    place, total, weights = (i + 0.5) * step - 0.5, 0.0, 0.0
    wide = max(step, 1.0) if rule == "bicubic_antialiased" else 1.0
    a = -0.5 if rule == "bicubic_antialiased" else -0.75
    for k in range(int(np.floor(place - 2 * wide)), int(np.ceil(place + 2 * wide)) + 1):
      if rule == "bicubic_antialiased" and not 0 <= k < old:
        continue
      weight = keys((k - place) / wide, a)
      total, weights = (
        total + weight * np.float64(values[min(max(k, 0), old - 1)]),
        weights + weight,
      )
    result.append(total / weights)
  return np.stack(result)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("old", "new"), GRIDS)
def test_bicubic_rules_against_a_plain_formula_and_torch(old, new, rule):
  rng = np.random.default_rng(0)
  table = rng.standard_normal((1, 5 + old[0] * old[1], 8)).astype(np.float32)
  resized = resize_table(table, old, new, before=5, rule=rule)
  assert resized.dtype == np.float32
  np.testing.assert_array_equal(resized[:, :5], table[:, :5])
  grid, got = table[0, 5:].reshape(*old, 8), resized[0, 5:].reshape(*new, 8)
  rows = line(grid, new[0], rule)
  plain = line(rows.swapaxes(0, 1), new[1], rule).swapaxes(0, 1)
  np.testing.assert_allclose(got, plain, atol=1e-6, rtol=0)
  one = resize_axis(grid[:, 0], new[0], rule)
  np.testing.assert_allclose(one, line(grid[:, 0], new[0], rule), atol=1e-6, rtol=0)
  torch = pytest.importorskip("torch", reason="torch is not installed (extra `agreement`)")
  size = dict(size=new)
  if rule == "bicubic_offset":  # as DINOv2's own code calls it
    size = dict(scale_factor=tuple((n + 0.1) / o for n, o in zip(new, old, strict=True)))
  theirs = torch.nn.functional.interpolate(
    torch.from_numpy(grid.transpose(2, 0, 1)[None].copy()),
    mode="bicubic",
    antialias=rule == "bicubic_antialiased",
    **size,
  )
  np.testing.assert_allclose(got, theirs[0].numpy().transpose(1, 2, 0), atol=2e-5, rtol=0)
