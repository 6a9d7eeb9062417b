"""All families learn alike on one device and on eight; bfloat16 and rematerialisation."""

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import modules, resolved
from tests.golden import weights as golden
from tests.learning import steps
from vit_jax import models
from vit_jax.learning.optimizers.sgd import SGD

ENCODER = dict(depth=2, width=32, mlp_dim=64, heads=2)
TRANSFORMERS = {
  "ViT": dict(name="ViT-B/8"),
  "hybrid": dict(
    **dict(name="R50x1+ViT-B/16", stages=(1,), stem_width=32, positions="relative"),
    **dict(pool="map_with_token", rotary="mixed", mlp="gated", activation="silu", norm="rms"),
    mlp_norm=True,
  ),
  "axial ViT": dict(name="Axial-ViT-B/8", pool="map", positions="2d", position_place="every_layer"),
}
RESNETS = {
  "ResNet": dict(name="R50x1", stages=(1, 1), width=32),
  "axial ResNet": dict(name="Axial-R50", stages=(1, 1), width=32),
  "ResNet-D": dict(name="R50x1", unit_kind="d", stages=(1, 1), width=64),
}
OPTIONS = {key: fields | ENCODER for key, fields in TRANSFORMERS.items()} | RESNETS
COMPUTED = pytest.mark.parametrize("family", ["ViT", "hybrid", *RESNETS])
IMAGES = golden.images(32)


def losses(data, fsdp):
  """The losses of twelve steps of a hybrid, whose blocks are stacked, on one batch."""
  model = resolved.model(**OPTIONS["hybrid"], scan=True, num_classes=5)
  optimizer = SGD(momentum=0.95, clip_norm=1.0, ema=0.0)
  config = dataclasses.replace(steps.CONFIG, model=model, optimizer=optimizer)
  _, history = steps.run(config, steps.mesh_of(data, fsdp), steps.BATCHES[:1] * 12)
  return [float(metrics["loss"]) for metrics in history]


def start(family, **options):
  """A model, and parameters of which none is 0."""
  return models.create(**OPTIONS[family] | options, num_classes=10), parameters(family)


@functools.cache
def parameters(family):
  model = models.create(**OPTIONS[family], num_classes=10)
  return modules.parameters(model, IMAGES, train=False)


@pytest.mark.parametrize("family", OPTIONS)
def test_images_of_integers_are_refused_before_anything_is_computed(family):
  """Their pixels are not in [-1, 1], and all classes would be wrong without a word."""
  model = models.create(**OPTIONS[family], num_classes=10)
  of_type = lambda kind: jax.ShapeDtypeStruct((1, 32, 32, 3), kind)
  init = lambda images: model.init(jax.random.key(0), images, train=False)
  variables = jax.eval_shape(init, of_type(np.float16))
  apply = lambda images: model.apply(variables, images, train=False, method="features")
  for function, kind in ((apply, np.uint8), (apply, np.bool_), (init, np.int32)):
    with pytest.raises(ValueError, match=rf"are {np.dtype(kind)}; .* give images / 127\.5 - 1"):
      jax.eval_shape(function, of_type(kind))


@pytest.mark.parametrize("family", OPTIONS)
def test_images_of_other_channels_are_refused(family):
  """The parameters would be of another model than the module, and than its card."""
  model = models.create(**OPTIONS[family], num_classes=10)
  init = lambda images: model.init(jax.random.key(0), images, train=False)
  with pytest.raises(ValueError, match="images have 1 channels, and the model takes 3; give"):
    jax.eval_shape(init, jax.ShapeDtypeStruct((1, 32, 32, 1), np.float32))


def test_eight_devices_learn_as_one_does():
  """A hybrid has the layers of both families but axial attention, which needs no collective."""
  one = losses(1, 1)
  assert np.mean(one[-3:]) < 0.7 * np.mean(one[:3])
  # After more than two updates, rounding decides where ties in a max-pooling fall.
  np.testing.assert_allclose(losses(2, 4)[:3], one[:3], rtol=2e-5)


@pytest.mark.parametrize("family", ["hybrid", "axial ResNet"])  # which have the others' layers
def test_bfloat16_gives_logits_near_those_of_float32(family):
  model, params = start(family)
  exact, _ = modules.run(model, params, IMAGES)
  logits, _ = modules.run(model.clone(dtype=jnp.bfloat16), params, IMAGES)
  assert 1e-6 < np.abs(logits - exact).max() < 0.05 * np.abs(exact).max()


def test_remat_changes_neither_outputs_nor_gradients():
  """In float64: in float32, rounding decides about a ReLU at zero, which is 9% of a gradient."""
  with jax.enable_x64(True):
    model = start("hybrid")[0].clone(depth=1, dtype=jnp.float64)  # a block and a residual unit
    params = modules.parameters(model, IMAGES, train=False)
    params = jax.tree.map(np.float64, params)
    expected, wanted = modules.logits_and_grads(model, params, IMAGES)
    actual, grads = modules.logits_and_grads(model.clone(remat="everything"), params, IMAGES)
  np.testing.assert_allclose(actual, expected, atol=1e-5)
  modules.assert_close(grads, wanted)


@COMPUTED
def test_logits_are_float32_and_all_else_is_bfloat16(family):
  model, params = start(family, dtype=jnp.bfloat16)
  trace = jax.make_jaxpr(lambda p: modules.run(model, p, IMAGES), return_shape=True)
  text, (logits, features) = trace(params)
  assert logits.dtype == jnp.float32
  assert features["patches"].dtype == features["pre_logits"].dtype == jnp.bfloat16
  types = re.findall(r"(\w+)\[[\d,]+\] = conv_general_dilated", str(text))
  assert set(types) == (set() if family == "ViT" else {"bf16"})


@COMPUTED
def test_remat_keeps_less(family):
  model, params = start(family)
  kept = lambda remat: modules.kept(model.clone(remat=remat), params, IMAGES)
  assert kept("everything") <= kept("dots") < 0.8 * kept("none")
