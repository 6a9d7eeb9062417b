"""Weights that LoRA has changed, exported: timm and Transformers compute what our run computes.

Needs torch, timm and transformers (the extra `agreement`); skipped, with this reason, without them.
"""

import dataclasses

import jax
import numpy as np
import optax
import pytest

from tests.weights import families
from vit_jax import weights
from vit_jax.extras import lora, settings
from vit_jax.learning.classification import Classification
from vit_jax.models.recognition import settings_of
from vit_jax.weights import Weights
from vit_jax.weights.card import Card

BOUND = 1e-5
torch = pytest.importorskip("torch", reason="torch is not installed (extra `agreement`)")


@pytest.fixture(scope="module")
def trained():
  """The module, its merged parameters after two steps, and the logits that the run computes."""
  module = families.module("vit", activation="gelu")
  asked = settings.LoRA(rank=2, alpha=4.0)
  objective = lora.LoRA(Classification(module), asked)
  params = objective.init(jax.random.key(0), families.SIDE) | families.params("vit")
  before = params
  pixels = np.random.default_rng(2).integers(0, 256, (4, 16, 16, 3), dtype=np.uint8)
  batch = {
    "image": pixels,
    "labels": np.array([0, 1, 2, 4], np.int32),
    "mask": np.ones(4, np.float32),
  }
  batch = objective.prepare(batch, jax.random.key(1))

  @jax.jit
  def step(params):
    gradient = jax.grad(lambda p: objective.loss(p, {}, batch, jax.random.key(2)).loss)(params)
    moved = {name: gradient[name] for name in ("lora", "head")}
    return params | optax.apply_updates(
      {name: params[name] for name in moved}, jax.tree.map(lambda x: -0.05 * x, moved)
    )

  for _ in range(2):
    params = step(params)
  own = objective.for_model(params)
  logits, _ = module.apply({"params": own}, families.images(), train=False)
  unchanged, _ = module.apply({"params": before}, families.images(), train=False)
  assert abs(logits - unchanged).max() > 0.01
  return (
    module,
    lora.LoRA.merged(jax.device_get(params), dataclasses.asdict(asked)),
    np.asarray(logits),
  )


def written(trained, path, form=""):
  module, params, _ = trained
  weights.write(path, Weights(params, Card(families.SIDE, model=settings_of(module))), form)


def test_in_timm(trained, tmp_path):
  timm = pytest.importorskip("timm", reason="timm is not installed (extra `agreement`)")
  written(trained, tmp_path / "w.safetensors", "safetensors")
  model = timm.models.VisionTransformer(
    **dict(img_size=16, patch_size=4, embed_dim=32, depth=2, num_heads=2, mlp_ratio=2),
    num_classes=5,
  )
  timm.models.load_checkpoint(model, str(tmp_path / "w.safetensors"), strict=True)
  with torch.no_grad():
    theirs = model.eval()(torch.from_numpy(families.images().transpose(0, 3, 1, 2).copy()))
  np.testing.assert_allclose(theirs.numpy(), trained[2], atol=BOUND, rtol=0)


def test_in_transformers(trained, tmp_path):
  library = pytest.importorskip("transformers", reason="transformers is not installed")
  written(trained, tmp_path / "hf", "huggingface")
  model = library.ViTForImageClassification.from_pretrained(tmp_path / "hf").eval()
  with torch.no_grad():
    theirs = model(torch.from_numpy(families.images().transpose(0, 3, 1, 2).copy())).logits
  np.testing.assert_allclose(theirs.numpy(), trained[2], atol=BOUND, rtol=0)
