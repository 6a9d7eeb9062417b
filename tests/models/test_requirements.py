"""What a model cannot do is refused: other sizes, and what cuDNN's attention does not compute."""

import re
import types

import jax.numpy as jnp
import pytest

from vit_jax import models, recipes
from vit_jax.config import AUTO, ConfigError
from vit_jax.models import family

CPU = types.SimpleNamespace(platform="cpu")
SMALL = dict(width=64, mlp_dim=64, heads=4, depth=2, dtype=jnp.bfloat16, attention="cudnn")


def gpu(capability="9.0"):
  return types.SimpleNamespace(platform="gpu", compute_capability=capability)


def vit(name="ViT-B/8", **changes):
  return models.create(name, **SMALL | changes)


def refusal(module, device, side=32):
  return family.why_not_cudnn(module, side, device)


@pytest.mark.parametrize(
  ("module", "device", "message"),
  [
    (vit(), CPU, "needs a GPU, and this is a cpu"),
    (vit(dtype=jnp.float32), gpu(), r"bfloat16 only; set --config\.model\.compute_dtype=bfloat16"),
    (vit(heads=16), gpu(), "a head of this model has 4; use"),
    (vit(width=1088), gpu(), "at most 256, and a head of this model has 272"),
    (vit(width=544), gpu("8.0"), "at most 128, and a head of this model has 136"),
    (vit(), gpu("7.5"), "compute capability 8.0 or higher, and this one has 7.5; use"),
    (vit(), gpu("gfx90a"), "needs an NVIDIA GPU .* has gfx90a; use"),
    (models.create("R50x1", heads=16, attention="cudnn", dtype=jnp.bfloat16), gpu(), "has 4; use"),
  ],
)
def test_what_cudnn_cannot_compute(module, device, message):
  expected = f"config.model.attention='cudnn' .*({message})"
  assert re.search(expected, refusal(module, device))
  with pytest.raises(ConfigError, match=expected):
    family.check_attention(module, 32, device)
  for attention in ("xla", "auto"):
    family.check_attention(module.clone(attention=attention), 32, device)


@pytest.mark.parametrize("flag", ["deterministic_ops", "exclude_nondeterministic_ops"])
def test_cudnn_fails_where_the_same_bits_are_asked_for(flag, monkeypatch):
  monkeypatch.setenv("XLA_FLAGS", f"--xla_gpu_{flag}=true")
  assert family.attention_on(vit(), 32, gpu()) == "xla"
  with pytest.raises(ConfigError, match=f"attention='cudnn' .*{flag}.*; use --config"):
    family.check_attention(vit(), 32, gpu())
  monkeypatch.setenv("XLA_FLAGS", f"--xla_gpu_{flag}=false")
  assert family.attention_on(vit(), 32, gpu()) == "cudnn"


def test_what_cudnn_can_compute():
  able = [(vit(), gpu(capability)) for capability in ("8.0", "9.0", "12.1")]
  able += [(vit(width=544), gpu("10.0")), (vit(pool="map"), gpu())]
  able += [(vit(positions="relative", scan=scan), gpu()) for scan in (False, True)]
  able += [(vit("Axial-ViT-B/32", patch=32, positions="relative"), gpu())]
  for module, device in able:
    for attention in ("cudnn", "auto", "xla"):
      assert not refusal(module.clone(attention=attention), device)
      family.check_attention(module.clone(attention=attention), 32, device)


def test_every_attention_of_a_model_is_found():
  found = lambda module: family.head_channels(module, 64)
  assert found(vit(scan=True)) == found(vit(scan=False)) == {16}
  assert found(vit("Axial-ViT-B/8", positions="relative", heads=8)) == {8}
  assert found(models.create("Axial-R50", stages=(1, 1), width=64)) == {8, 16}
  assert found(models.create("R50x1", stages=(1,), width=32)) == set()


@pytest.mark.parametrize(
  ("name", "most", "side"),
  [("ViT-B/16", 100, 96), ("ViT-B/16", 16, 16), ("R50x1+ViT-B/16", 40, 32), ("R50x1", 7, 7)],
)
def test_the_largest_side(name, most, side):
  assert family.largest_side(models.create(name), most, name) == side
  assert recipes.largest_side(name, most) == side


@pytest.mark.parametrize(("name", "most"), [("ViT-B/16", 15), ("R50x1+ViT-B/32", 31)])
def test_no_side_fits(name, most):
  message = f"Images of {most} pixels are smaller than a patch of {re.escape(name)}; the smallest"
  with pytest.raises(ConfigError, match=message):
    family.largest_side(models.create(name), most, name)
  with pytest.raises(ConfigError, match=message):
    recipes.largest_side(name, most)


def test_a_suite_of_any_size_takes_that_of_the_weights():
  assert recipes.evaluation("imagenet", "ViT-B/16").data.image_size == AUTO
  with pytest.raises(ConfigError, match="'ViT-X' is no model"):
    recipes.evaluation("imagenet", "ViT-X")
  assert recipes.evaluation("knn", "ViT-B/20").data.image_size == 220
  with pytest.raises(ConfigError, match="224 pixels are smaller than a patch of ViT-B/300"):
    recipes.evaluation("knn", "ViT-B/300")
