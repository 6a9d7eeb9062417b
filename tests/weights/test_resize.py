"""Compares resized position embeddings with scipy, torch and plain float64 formulas."""

import functools

import numpy as np
import pytest
import scipy.ndimage

from vit_jax.config import POSITION_RESIZING
from vit_jax.weights.resizing import (
  PUBLISHED,
  resize_axis,
  resize_biases,
  resize_offsets,
  resize_table,
)

GRIDS = [
  ((14, 14), (32, 32)),  # 224 / 16 to 512 / 16
  ((16, 16), (37, 37)),  # 224 / 14 to 518 / 14
  ((37, 37), (16, 16)),  # DINOv2: 518 / 14 to 224 / 14
  ((14, 14), (24, 24)),  # 224 / 16 to 384 / 16
  ((14, 14), (7, 7)),
  ((3, 5), (7, 4)),
  ((1, 1), (3, 2)),
  ((4, 4), (1, 1)),
  ((9, 2), (2, 9)),
  ((6, 6), (6, 6)),
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
  if rule == PUBLISHED:  # with aligned corners
    places = np.linspace(0, old - 1, new)
    return np.stack([np.interp(places, range(old), column) for column in values.T], axis=1)
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


@pytest.mark.parametrize("rule", POSITION_RESIZING)
@pytest.mark.parametrize(("old", "new"), GRIDS)
def test_every_rule_against_a_plain_formula_scipy_and_torch(old, new, rule):
  rng = np.random.default_rng(0)
  table = rng.standard_normal((1, 5 + old[0] * old[1], 8)).astype(np.float32)
  resized = resize_table(table, old, new, before=5, rule=rule)
  assert resized.dtype == np.float32
  assert resized.shape == (1, 5 + new[0] * new[1], 8)
  np.testing.assert_array_equal(resized[:, :5], table[:, :5])
  patches = resize_table(table[:, 5:], old, new, before=0, rule=rule)
  np.testing.assert_array_equal(patches, resized[:, 5:])
  grid, got = table[0, 5:].reshape(*old, 8), resized[0, 5:].reshape(*new, 8)
  near = functools.partial(np.testing.assert_allclose, atol=1e-6, rtol=0)
  rows = np.stack([line(column, new[0], rule) for column in grid.swapaxes(0, 1)], axis=1)
  near(got, np.stack([line(row, new[1], rule) for row in rows]))
  near(resize_axis(grid[:, 0], new[0], rule), line(grid[:, 0], new[0], rule))
  if rule == PUBLISHED:
    if min(*old, *new) > 1:
      near(got, scipy.ndimage.zoom(grid, (new[0] / old[0], new[1] / old[1], 1), order=1))
    return
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


def offsets(values, new, rule):
  """One axis of embeddings or biases of offsets: (2 old - 1, D) -> (2 new - 1, D)."""
  old = (len(values) + 1) // 2
  if rule == PUBLISHED:  # the farthest stays the farthest
    places = np.arange(1 - new, new) * (old - 1) / max(new - 1, 1) + old - 1
  else:
    places = (np.arange(2 * new - 1) + 0.5) * (2 * old - 1) / (2 * new - 1) - 0.5
  return np.stack([np.interp(places, range(2 * old - 1), x) for x in values.T], axis=1)


SIDES = [(14, 24), (14, 7), (3, 5), (5, 2), (2, 60), (1, 3), (4, 1), (6, 6)]


@pytest.mark.parametrize("rule", POSITION_RESIZING)
@pytest.mark.parametrize(("old", "new"), SIDES)
def test_what_belongs_to_offsets_against_plain_formulas_and_torch(old, new, rule):
  """BEiT's biases as in timm are compared in tests/agreement."""
  rng = np.random.default_rng(0)
  near = functools.partial(np.testing.assert_allclose, atol=1e-6, rtol=0)
  axis = rng.standard_normal((2 * old - 1, 8)).astype(np.float32)
  resized = resize_offsets(axis, 2 * new - 1, rule)
  near(resized, offsets(axis, new, rule))
  table = rng.standard_normal(((2 * old - 1) ** 2 + 3, 8)).astype(np.float32)
  biases = resize_biases(table, (old, old), (new, new), rule)
  assert resized.dtype == biases.dtype == np.float32
  np.testing.assert_array_equal(biases[-3:], table[-3:])
  grid = table[:-3].reshape(2 * old - 1, 2 * old - 1, 8)
  got = biases[:-3].reshape(2 * new - 1, 2 * new - 1, 8)
  if rule != "bicubic_antialiased":
    rows = np.stack([offsets(column, new, rule) for column in grid.swapaxes(0, 1)], axis=1)
    near(got, np.stack([offsets(row, new, rule) for row in rows]))
  if rule != "bicubic":
    return
  torch = pytest.importorskip("torch", reason="torch is not installed (extra `agreement`)")
  of_torch = lambda x: torch.from_numpy(np.moveaxis(x, -1, 0)[None].copy())
  enlarge = functools.partial(torch.nn.functional.interpolate, size=2 * new - 1)
  near(resized, enlarge(of_torch(axis), mode="linear")[0].numpy().T, atol=2e-5)
  theirs = torch.nn.functional.interpolate(of_torch(grid), size=got.shape[:2], mode="bilinear")
  near(got, theirs[0].numpy().transpose(1, 2, 0), atol=2e-5)
