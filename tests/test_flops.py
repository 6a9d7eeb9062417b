"""Analytic cost against XLA's own count, and peaks."""

import jax
import jax.numpy as jnp
import pytest

from vit_jax import flops, models
from vit_jax.models.naming import resolve


@pytest.mark.parametrize(("pool", "representation"), [("class_token", True), ("gap", False)])
def test_multiply_adds_against_the_compiler(pool, representation):
  size, patch = resolve("ViT-S/16")
  macs = flops.vit_macs(
    size,
    patch=patch,
    height=224,
    width=224,
    num_classes=1000,
    class_token=pool == "class_token",
    representation_layer=representation,
  )
  model = models.create("ViT-S/16", pool=pool, representation_layer=representation)
  images = jax.ShapeDtypeStruct((1, 224, 224, 3), jnp.float32)
  params = jax.eval_shape(
    lambda: model.init(jax.random.key(0), jnp.zeros(images.shape), train=False)
  )
  forward = jax.jit(lambda p, x: model.apply(p, x, train=False)[0])
  counted = forward.lower(params, images).compile().cost_analysis()["flops"]
  assert 2 * macs == pytest.approx(counted, rel=0.03)


def test_training_costs_three_forward_passes():
  assert flops.training_flops(10) == 60


@pytest.mark.parametrize(
  ("kind", "peak"),
  [
    ("TPU v3", 61.5e12),
    ("TPU v5 lite", 197e12),
    ("TPU v5p", 459e12),
    ("NVIDIA H200", 989e12),
    ("NVIDIA H100 80GB HBM3", 989e12),
    ("cpu", None),
  ],
)
def test_peaks(kind, peak):
  assert flops.peak_flops(kind) == peak
