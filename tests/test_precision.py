"""Matmuls that decide a metric are exact, also on TPUs, where JAX rounds them to bfloat16.

The tests themselves run with exact matmuls by default, so here they are asked for others.
"""

import re

import jax
import jax.numpy as jnp
import pytest

from vit_jax.evaluation import few_shot, nearest_neighbours
from vit_jax.extras.inspection import maps
from vit_jax.extras.masked_patches import corruption


class Pixels:
  """A model whose features are its pixels."""

  dtype = jnp.float32

  def apply(self, _, images, **__):
    return {"pre_logits": images.reshape(len(images), -1)}


def probes(rows):
  """Scores of one linear probe."""
  probe = dict(mean=jnp.ones(3), deviation=jnp.ones(3), kernel=jnp.ones((3, 5)), bias=jnp.ones(5))
  one = jax.tree.map(lambda x: x[None], probe)
  batch = dict(image=rows[:, None, None], labels=jnp.ones(4, int), mask=jnp.ones(4))
  return few_shot.make_step(Pixels(), "pre_logits")({}, one, batch)


@pytest.mark.parametrize(
  "function",
  [
    probes,
    lambda rows: nearest_neighbours.best(rows, rows, 2),
    lambda rows: corruption.rows(rows[None], jnp.zeros((1, 2), int)),
    lambda rows: maps.rolled(rows, [jnp.ones((4, 2, 3, 3))]),
  ],
  ids=["linear probe", "nearest neighbours", "patches that are taken", "attention rollout"],
)
def test_no_product_is_rounded(function):
  with jax.default_matmul_precision("bfloat16"):
    text = str(jax.make_jaxpr(function)(jnp.ones((4, 3))))
  assert re.findall(r"precision=(.*)", text) == ["(Precision.HIGHEST, Precision.HIGHEST)"]
