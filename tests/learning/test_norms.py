"""Norms of trees: as NumPy computes them in float64, by array and by shape."""

import jax
import numpy as np
import pytest

from vit_jax.learning.train_step import BY_ARRAY, BY_SHAPE, TOGETHER, norm_by_shape

SHAPES = [(), (3,), (1, 3), (3, 1), (2, 5), *[(4, 2, 3)] * (2 * TOGETHER + 1), *[(7,)] * TOGETHER]
by_shape = jax.jit(norm_by_shape)


def drawn(seed):
  rng = np.random.default_rng(seed)
  return {str(i): np.float32(rng.normal(size=shape)) for i, shape in enumerate(SHAPES)}


@pytest.mark.parametrize("norms", [BY_ARRAY, BY_SHAPE])
@pytest.mark.parametrize("seed", range(3))
def test_it_is_that_of_all_numbers_in_one_array(seed, norms):
  tree = drawn(seed)
  whole = np.concatenate([np.float64(x).ravel() for x in tree.values()])
  np.testing.assert_allclose(jax.jit(norms.norm)(tree), np.linalg.norm(whole), rtol=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_shows(value):
  tree = drawn(0)
  tree["20"][1, 1, 1] = value
  assert not np.isfinite(by_shape(tree))


def test_arrays_of_one_shape_are_summed_together():
  made = jax.make_jaxpr(norm_by_shape)(drawn(0))
  sums = [eqn for eqn in made.eqns if eqn.primitive.name == "reduce_sum"]
  assert len(sums) == len(set(SHAPES)) + 2  # the arrays (4, 2, 3) make three groups
