"""What a model cannot do is refused: other sizes, and what cuDNN's attention does not compute."""

import re
import types

import jax.numpy as jnp
import pytest

from vit_jax import models, recipes
from vit_jax.config import ConfigError
from vit_jax.models import requirements

CPU = types.SimpleNamespace(platform="cpu")
SMALL = dict(width=64, mlp_dim=64, heads=4, depth=2, dtype=jnp.bfloat16, attention="cudnn")


def gpu(capability="9.0"):
  return types.SimpleNamespace(platform="gpu", compute_capability=capability)


def vit(name="ViT-B/8", **changes):
  return models.create(name, **SMALL | changes)


def check(module, device=None, side=32, training=True):
  requirements.check_attention(module, side, device or gpu(), training=training)


@pytest.mark.parametrize(
  ("module", "device", "message"),
  [
    (vit(), CPU, "needs a GPU, and this is a cpu"),
    (vit(dtype=jnp.float32), gpu(), r"bfloat16 only; set --config\.model\.compute_dtype=bfloat16"),
    (vit(heads=16), gpu(), "a head of this model has 4; use"),
    (vit(width=1088), gpu(), "at most 256, and a head of this model has 272"),
    (vit(width=544), gpu("8.0"), "at most 128, and a head of this model has 136"),
    (vit(positions="relative"), gpu(), "this model attends to 17; use"),
    (vit(positions="relative", scan=True), gpu(), "this model attends to 17; use"),
    (vit("Axial-ViT-B/32", patch=32, positions="relative"), gpu(), "this model attends to 1; use"),
    (models.create("R50x1", heads=8, attention="cudnn", dtype=jnp.bfloat16), gpu(), "has 32|to 1;"),
  ],
)
def test_what_cudnn_cannot_compute(module, device, message):
  with pytest.raises(ConfigError, match=f"config.model.attention='cudnn' .*({message})"):
    check(module, device)
  check(module.clone(attention="xla"), device)


def test_what_cudnn_can_compute():
  for capability in ("8.0", "9.0", "12.1", "gfx90a"):
    check(vit(), gpu(capability))
  check(vit(width=544), gpu("10.0"))
  check(vit(positions="relative", pool="gap"))  # 16 tokens
  check(vit(positions="relative"), training=False)
  check(vit(pool="map"))


def test_every_attention_of_a_model_is_found():
  found = lambda module: requirements.attentions(module, 64)
  assert found(vit(scan=True)) == found(vit(scan=False)) == {(65, 16, False)}
  assert found(vit(pool="map")) == {(64, 16, False), (1, 16, False)}
  assert found(vit("Axial-ViT-B/8", positions="relative")) == {(8, 16, True)}
  axial = models.create("Axial-R50", stages=(1, 1), width=64)
  assert found(axial) == {(16, 8, True), (16, 16, True)}
  assert found(models.create("R50x1", stages=(1,), width=32)) == set()


@pytest.mark.parametrize(
  ("name", "most", "side"),
  [("ViT-B/16", 100, 96), ("ViT-B/16", 16, 16), ("R50x1+ViT-B/16", 40, 32), ("R50x1", 7, 7)],
)
def test_the_largest_side(name, most, side):
  assert requirements.largest_side(models.create(name), most, name) == side
  assert recipes.largest_side(name, most) == side


@pytest.mark.parametrize(("name", "most"), [("ViT-B/16", 15), ("R50x1+ViT-B/32", 31)])
def test_no_side_fits(name, most):
  message = f"Images of {most} pixels are smaller than a patch of {re.escape(name)}; the smallest"
  with pytest.raises(ConfigError, match=message):
    requirements.largest_side(models.create(name), most, name)
  with pytest.raises(ConfigError, match=message):
    recipes.largest_side(name, most)


def test_a_suite_of_any_size_takes_that_of_the_weights():
  assert recipes.evaluation("imagenet", "ViT-B/16").data.image_size == 0
  with pytest.raises(ConfigError, match="'ViT-X' is no model"):
    recipes.evaluation("imagenet", "ViT-X")
  assert recipes.evaluation("knn", "ViT-B/20").data.image_size == 220
  with pytest.raises(ConfigError, match="224 pixels are smaller than a patch of ViT-B/300"):
    recipes.evaluation("knn", "ViT-B/300")
