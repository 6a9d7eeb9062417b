"""Which patches are corrupted, and how."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vit_jax.extras.masked_patches import corruption
from vit_jax.extras.masked_patches.corruption import KEPT, MASKED, REPLACED

IMAGES, PATCHES, CORRUPTED = 4000, 20, 10
draw = jax.jit(corruption.draw, static_argnames=("patches", "corrupted"))


@functools.cache
def drawn(seed=0):
  found = draw(jax.random.key(seed), places=np.arange(IMAGES), patches=PATCHES, corrupted=CORRUPTED)
  return jax.device_get(found)


@pytest.mark.parametrize(
  ("rate", "patches", "number"), [(0.5, 196, 98), (0.15, 196, 29), (0.5, 49, 24), (1, 9, 9)]
)
def test_the_number_is_the_rounded_share(rate, patches, number):
  assert corruption.count(rate, patches) == number


def test_all_patches_are_drawn_equally_often_and_none_twice():
  assert all(len({*image}) == CORRUPTED for image in drawn().patches)
  counts = np.bincount(drawn().patches.ravel(), minlength=PATCHES)
  expected = IMAGES * CORRUPTED / PATCHES
  variance = IMAGES * (CORRUPTED / PATCHES) * (1 - CORRUPTED / PATCHES)
  assert abs(counts - expected).max() < 4 * variance**0.5


def test_of_the_corrupted_eight_tenths_are_masked_one_replaced_and_one_kept():
  total = IMAGES * CORRUPTED
  for kind, share in ((MASKED, 0.8), (REPLACED, 0.1), (KEPT, 0.1)):
    deviation = (total * share * (1 - share)) ** 0.5
    assert abs((drawn().kinds == kind).sum() - share * total) < 4 * deviation


def test_a_replaced_patch_gets_another_patch_of_the_image_and_all_others_are_as_probable():
  found = drawn()
  sources = np.take_along_axis(found.sources, found.patches, axis=1)
  moved = (sources - found.patches) % PATCHES
  assert ((moved != 0) == (found.kinds == REPLACED)).all()
  counts = np.bincount(moved[moved != 0], minlength=PATCHES)[1:]
  expected = counts.sum() / (PATCHES - 1)
  assert np.sum((counts - expected) ** 2 / expected) < 45  # chi-square with 18 degrees: p 0.0004


def test_masks_and_sources_are_those_of_the_corrupted_patches():
  found = drawn()
  rows = np.arange(IMAGES)[:, None]
  wanted = np.zeros((IMAGES, PATCHES), bool)
  wanted[rows, found.patches] = found.kinds == MASKED
  np.testing.assert_array_equal(found.masked, wanted)
  untouched = np.ones((IMAGES, PATCHES), bool)
  untouched[rows, found.patches] = False
  own = np.broadcast_to(np.arange(PATCHES), untouched.shape)
  np.testing.assert_array_equal(found.sources[untouched], own[untouched])


def test_the_draws_depend_on_the_key_and_the_place_alone():
  some = draw(jax.random.key(0), places=np.arange(7, 12), patches=PATCHES, corrupted=CORRUPTED)
  for part, whole in zip(some, drawn(), strict=True):
    np.testing.assert_array_equal(part, whole[7:12])
  assert (drawn(1).patches != drawn().patches).any()


def test_the_draws_never_change():
  """Otherwise runs of an earlier release would go on with other patches."""
  found = draw(jax.random.key(7), places=np.array([0, 5]), patches=9, corrupted=6)
  assert found.patches.tolist() == [[6, 4, 3, 7, 5, 2], [4, 7, 0, 2, 3, 6]]
  assert found.kinds.tolist() == [[2, 1, 0, 0, 0, 1], [0, 0, 1, 0, 2, 0]]
  assert found.sources.tolist() == [[0, 1, 0, 3, 5, 5, 6, 7, 8], [7, 1, 2, 3, 4, 5, 6, 7, 8]]
  assert np.flatnonzero(found.masked[0]).tolist() == [3, 5, 7]
  names = {corruption.KINDS[kind] for kind in (MASKED, REPLACED, KEPT)}
  assert names == {"masked", "replaced", "kept"}


def test_embeddings_are_masked_replaced_or_kept():
  x = np.random.default_rng(0).normal(size=(3, 6, 4)).astype(np.float32)
  found = jax.device_get(draw(jax.random.key(3), places=np.arange(3), patches=6, corrupted=6))
  mask = np.full(4, 9.0, np.float32)
  wanted = x.copy()
  for image in range(3):
    for patch, kind in zip(found.patches[image], found.kinds[image], strict=True):
      if kind == MASKED:
        wanted[image, patch] = mask
      elif kind == REPLACED:
        wanted[image, patch] = x[image, found.sources[image, patch]]
  np.testing.assert_array_equal(corruption.corrupt(x, found, mask), wanted)
  assert (wanted != x).any()


@pytest.mark.parametrize("kind", ["uint8", "int32", "float32", "bfloat16"])
def test_rows_are_taken_and_filled_exactly(kind):
  rng = np.random.default_rng(0)
  x = jnp.asarray(rng.integers(0, 256, (3, 6, 4)), kind)
  if kind == "float32":
    x = jnp.asarray(rng.normal(size=(3, 6, 4)), kind)
  places = np.stack([rng.permutation(6)[:4] for _ in range(3)])
  wanted = np.take_along_axis(np.asarray(x), places[..., None], axis=1)
  found = corruption.rows(x, places)
  assert found.dtype == x.dtype
  np.testing.assert_array_equal(np.asarray(found), wanted)
  changed = np.asarray(x).copy()
  np.put_along_axis(changed, places[..., None], wanted[:, ::-1], axis=1)
  np.testing.assert_array_equal(corruption.filled(x, places, found[:, ::-1]), changed)
