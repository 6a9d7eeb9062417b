"""Our exports in timm: the same logits, attention and, for the same loss, the same gradients.

Needs torch and timm (the extra `agreement`); skipped, with this reason, where they are not there.
"""

import functools
import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import modules
from tests.golden import weights as golden
from vit_jax import models, weights
from vit_jax.extras import inspection
from vit_jax.storage.tree import flatten

CLASSES, SIDE = 7, 64
VIT = dict(act_layer="gelu_tanh", img_size=SIDE, depth=2)
# Our name and options; timm's; the bound.
CASES = {
  "vit": ("ViT-Ti/16", dict(depth=2), "vit_tiny_patch16_224", dict(VIT), 1e-5),
  "gap": (
    "ViT-Ti/16",
    dict(depth=2, pool="gap"),
    "vit_tiny_patch16_224",
    dict(VIT, class_token=False, global_pool="avg", fc_norm=False),
    1e-5,
  ),
  "hybrid": ("R26+ViT-S/32", dict(depth=2), "small_hybrid", dict(VIT), 1e-5),
  "small_bit": ("R50x1", dict(stages=(1, 1, 1, 1)), "small_bit", {}, 2e-5),
}


@functools.cache
def ours(case):
  """Module, parameters in which nothing is zero, images, labels."""
  name, options, *_ = CASES[case]
  module = models.create(name, num_classes=CLASSES, **options)
  rng = np.random.default_rng(0)
  images = rng.uniform(-1, 1, (2, SIDE, SIDE, 3)).astype(np.float32)
  return module, modules.parameters(module, images[:1], train=False), images, np.array([1, 4])


@pytest.fixture(scope="module")
def peer():
  """torch, timm and the models of tests/agreement/timm_models.py."""
  return importlib.import_module("tests.agreement.timm_models")


def theirs(peer, case, path):
  name, options = CASES[case][2:4]
  own = getattr(peer, name, None)
  make = own or functools.partial(peer.timm.create_model, name)
  model = make(num_classes=CLASSES, **options).eval()
  model.load_pretrained(str(path))
  return model


def torch_images(peer, images):
  return peer.torch.from_numpy(images.transpose(0, 3, 1, 2).copy())


def test_logits_of_a_hybrid_in_float64(peer, tmp_path):
  """In deep networks, what float32 rounds depends on the CPU; timm adds another epsilon too."""
  module, params, images, _ = ours("hybrid")
  weights.save(tmp_path / "w.npz", params)
  with jax.enable_x64(True):
    exact = jax.tree.map(np.float64, params)
    run = lambda p: module.clone(dtype=jnp.float64).apply({"params": p}, images, train=False)[0]
    expected = np.asarray(jax.jit(run)(exact))
  with peer.torch.no_grad():
    model = theirs(peer, "hybrid", tmp_path / "w.npz").double()
    got = model(torch_images(peer, images).double()).numpy()
  np.testing.assert_allclose(got, expected, atol=CASES["hybrid"][-1], rtol=0)


@pytest.mark.parametrize("case", ["vit", "gap"])
def test_logits(peer, tmp_path, case):
  module, params, images, _ = ours(case)
  weights.save(tmp_path / "w.npz", params)
  expected = jax.jit(lambda p: module.apply({"params": p}, images, train=False)[0])(params)
  with peer.torch.no_grad():
    got = theirs(peer, case, tmp_path / "w.npz")(torch_images(peer, images)).numpy()
  assert np.std(expected) > 0.1
  np.testing.assert_allclose(got, expected, atol=CASES[case][-1], rtol=0)


def test_outputs_at_the_patches_of_weights_without_a_head(peer, tmp_path):
  """As masked patch prediction leaves them."""
  module, params, images, _ = ours("vit")
  weights.save(tmp_path / "w.npz", {k: v for k, v in params.items() if k != "head"})
  features = jax.jit(lambda p: module.apply({"params": p}, images, train=False, method="features"))
  model = peer.timm.create_model("vit_tiny_patch16_224", num_classes=0, **VIT).eval()
  model.load_pretrained(str(tmp_path / "w.npz"))
  with peer.torch.no_grad():
    got = model.forward_features(torch_images(peer, images)).numpy()[:, 1:]
  np.testing.assert_allclose(got, features(params)["patches"], atol=1e-5, rtol=0)


@pytest.mark.parametrize("case", ["vit", "small_bit"])
def test_gradients(peer, tmp_path, case):
  """Our gradients, read by timm as if they were weights, beside its own."""
  module, params, images, labels = ours(case)

  def loss(params):
    logits, _ = module.apply({"params": params}, images, train=False)
    return -jax.nn.log_softmax(logits)[jnp.arange(2), labels].mean()

  weights.save(tmp_path / "weights.npz", params)
  weights.save(tmp_path / "gradients.npz", jax.device_get(jax.jit(jax.grad(loss))(params)))
  model = theirs(peer, case, tmp_path / "weights.npz")
  our_gradients = dict(theirs(peer, case, tmp_path / "gradients.npz").named_parameters())
  logits = model(torch_images(peer, images))
  peer.torch.nn.functional.cross_entropy(logits, peer.torch.from_numpy(labels)).backward()
  compared = 0
  for name, parameter in model.named_parameters():
    a, b = parameter.grad.double().flatten(), our_gradients[name].detach().double().flatten()
    compared += a.numel()
    if a.norm() > 1e-6 * parameter.norm():  # below, both are rounding: softmax ignores key biases
      assert peer.torch.nn.functional.cosine_similarity(a, b, dim=0) > 0.99999, name
      assert abs(a.norm() / b.norm() - 1) < 1e-3, name
    else:
      assert b.norm() <= 1e-5 * parameter.norm(), name
  assert compared == sum(x.size for x in flatten(params).values())


def test_attention_at_full_size(peer, tmp_path):
  """That of every layer of ViT-Ti/16, from the queries and keys of timm's own modules."""
  module, images = models.create("ViT-Ti/16", num_classes=CLASSES), golden.images(224, batch=1)
  params = modules.parameters(module, images, train=False)
  weights.save(tmp_path / "w.npz", params)
  model = peer.timm.create_model("vit_tiny_patch16_224", num_classes=CLASSES, act_layer="gelu_tanh")
  model.eval().load_pretrained(str(tmp_path / "w.npz"))
  kept = []
  for block in model.blocks:
    block.attn.qkv.register_forward_hook(lambda module, inputs, output: kept.append(output))
  with peer.torch.no_grad():
    model(torch_images(peer, images))
  found = list(inspection.attention_weights(module, params, images))
  assert len(found) == len(kept) == 12
  for ours, qkv in zip(found, kept, strict=True):
    query, key, _ = qkv.reshape(1, 197, 3, 3, 64).permute(2, 0, 3, 1, 4)
    theirs = (query @ key.transpose(-1, -2) / 8).softmax(dim=-1).numpy()
    np.testing.assert_allclose(ours, theirs, atol=1e-5, rtol=0)
  assert np.std(found[-1]) > 1e-3  # it is not uniform, which any model could have
