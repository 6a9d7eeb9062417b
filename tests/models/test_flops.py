"""Analytic cost against XLA's own count, and peaks; tests/tools/test_cost.py has Table 6."""

import pathlib

import jax
import jax.numpy as jnp
import pytest
from jax.extend import core

from vit_jax import models
from vit_jax.devices.chips import CHIPS
from vit_jax.models import vit_costs

SMALL = dict(depth=2, width=384, mlp_dim=1536, heads=6)
LATER = dict(registers=3, qk_norm=True, layer_scale=True, positions="sincos2d")
GATED = dict(mlp="gated", activation="silu", mlp_norm=True, rotary="eva02", kv_heads=2)
GATED |= dict(pool="map_with_token", pool_heads=4, pool_mlp_dim=768, dense_bias=False)
WINDOWS = dict(window=4, global_blocks=(1,), relative_axes=True, pool="gap", final_norm="none")
WINDOWS |= dict(neck="convolutions", neck_dim=64)
ADDED = dict(parallel_branches=2, differential=True, pool="distilled", first_norm="tokens")


PRODUCTS = {}  # the FLOPs of those that were counted; blocks repeat them


def counted(jaxpr) -> float:
  """FLOPs of all matmuls and convolutions, by the compiler's own count of each."""
  total = 0.0
  for step in jaxpr.eqns:
    if step.primitive.name in ("dot_general", "conv_general_dilated"):
      key = str((step.primitive, step.params, [x.aval for x in step.invars]))
      if key not in PRODUCTS:
        product = lambda *arrays, step=step: step.primitive.bind(*arrays, **step.params)
        shapes = (jax.ShapeDtypeStruct(x.aval.shape, x.aval.dtype) for x in step.invars)
        PRODUCTS[key] = jax.jit(product).lower(*shapes).cost_analysis()["flops"]
      total += PRODUCTS[key]
    inner = core.jaxprs_in_params(step.params)
    total += sum(map(counted, inner)) * step.params.get("length", 1)
  return total


STAGES = dict(stages=(1, 2, 1, 1))


@pytest.mark.parametrize(
  ("name", "options", "shape"),
  [
    ("ViT-S/16", dict(SMALL, representation_layer=True), (64, 96)),
    ("ViT-S/16", dict(SMALL, pool="gap", positions="relative"), (64, 96)),
    ("ViT-S/16", dict(SMALL, pool="map", depth=1), (32, 32)),  # the pooling is a seventh of it
    ("ViT-S/16", SMALL | LATER, (64, 96)),
    ("ViT-S/16", SMALL | LATER | dict(pool="gap"), (64, 96)),
    ("ViT-S/16", SMALL | LATER | dict(pool="map", depth=1), (32, 32)),
    ("ViT-S/16", SMALL | GATED | dict(depth=5, kv_heads_from=1), (32, 32)),
    ("ViT-S/16", SMALL | ADDED, (64, 96)),
    ("ViT-S/16", SMALL | WINDOWS, (64, 96)),
    ("ViT-S/16", SMALL | WINDOWS | dict(parallel_branches=2), (64, 96)),
    ("ViT-S/16", SMALL | WINDOWS | dict(kv_heads=2, representation_layer=True), (64, 96)),
    ("ViT-S/16", SMALL | WINDOWS | dict(depth=5, kv_heads=2, kv_heads_from=1), (64, 96)),
    ("R50x1", STAGES | dict(unit_kind="d"), (223, 97)),
    ("R50x1", STAGES, (64, 96)),
    ("R50x1", STAGES, (223, 97)),
    ("R50x1+ViT-B/16", dict(SMALL, stages=(1, 2, 1)), (64, 96)),
    ("R50x1+ViT-B/32", SMALL | STAGES, (223, 97)),
    ("R+ViT-Ti/16", SMALL, (64, 96)),
    ("Axial-ViT-B/16", SMALL, (64, 96)),
    ("Axial-R50", STAGES, (64, 96)),
    ("Axial-R50", STAGES, (223, 97)),
  ],
)
def test_multiply_adds_are_those_that_the_compiler_counts(name, options, shape):
  """XLA leaves out products with padding; elementwise operations are left out on both sides."""
  model = models.create(name, **options)
  images = jnp.zeros((1, *shape, 3))
  params = jax.eval_shape(lambda: model.init(jax.random.key(0), images, train=False))
  forward = jax.make_jaxpr(lambda p, x: model.apply(p, x, train=False)[0])(params, images)
  assert 2 * model.macs(*shape) == pytest.approx(counted(forward.jaxpr), rel=1e-6)


def test_parameters_of_a_published_model_at_another_size():
  model = models.create("ViT-B/16", scan=True)  # a block is traced once
  count = sum(vit_costs.by_part(model.parameter_shapes(384)).values())
  assert count == 86_567_656 + (24**2 - 14**2) * 768


def test_the_images_that_chips_take_in_the_documents():
  """docs/data.md: peak x MFU / FLOPs of an image, for every kind of chip."""
  text = (pathlib.Path(__file__).parents[2] / "docs" / "data.md").read_text()
  lines = [line for line in text.splitlines() if line.startswith(("| TPU", "| NVIDIA"))]
  rows = [line.strip("| ").split("|") for line in lines]
  model = models.create("ViT-S/16", num_classes=1000)
  image = vit_costs.training_flops(model.macs(224, 224))
  for kind, images, *_ in rows:
    expected = 0.4 * CHIPS.get(kind.strip().removesuffix(" (one of two)")).peak_flops / image
    assert float(images.replace(",", "")) == pytest.approx(expected, rel=0.01), kind
  assert len(rows) == 7
