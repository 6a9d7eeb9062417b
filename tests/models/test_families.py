"""Every layer of all families learns the digits, alike on one device, on eight and with scan."""

import dataclasses
import functools
import re

import cv2
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import modules, resolved
from tests.golden import weights as golden
from vit_jax import config as c
from vit_jax import models
from vit_jax.data.sources.digits import Digits
from vit_jax.devices import mesh as meshes
from vit_jax.learning import optim, train_step
from vit_jax.learning.classification import Classification
from vit_jax.learning.optimizers.sgd import SGD
from vit_jax.models.stacking import stack_blocks

STEPS, BATCH, SIZE = 12, 16, 32
ENCODER = dict(depth=2, width=32, mlp_dim=64, heads=2)
TRANSFORMERS = {
  "ViT": dict(name="ViT-B/8"),
  "hybrid": dict(name="R50x1+ViT-B/16", stages=(1,), stem_width=32, positions="relative"),
  "axial ViT": dict(name="Axial-ViT-B/8", pool="map", positions="2d", position_place="every_layer"),
}
RESNETS = {
  "ResNet": dict(name="R50x1", stages=(1, 1), width=32),
  "axial ResNet": dict(name="Axial-R50", stages=(1, 1), width=32),
}
OPTIONS = {key: fields | ENCODER for key, fields in TRANSFORMERS.items()} | RESNETS
# Each kind of layer: a ViT's blocks are a hybrid's, a ResNet's units an axial one's but for their
# 3 x 3 convolutions, which a hybrid has.
TRAINED = pytest.mark.parametrize("family", ["hybrid", "axial ViT", "axial ResNet"])
COMPUTED = pytest.mark.parametrize("family", ["ViT", "hybrid", "ResNet", "axial ResNet"])
IMAGES = golden.images(SIZE)
CONFIG = resolved.config(batch_size=BATCH, optimizer=SGD(clip_norm=1.0, weight_decay=0.01))
RATE = optim.learning_rate_schedule(
  learning_rate=0.1, warmup_steps=0, total_steps=STEPS, decay="constant", end_learning_rate=0
)


@functools.cache
def digits():
  """One batch of digits, enlarged to RGB squares."""
  source = Digits(split="train")
  examples = [source[i] for i in range(BATCH)]
  images = np.stack([cv2.resize(example.image, (SIZE, SIZE)) for example in examples])
  return dict(
    image=np.repeat(images[..., None], 3, axis=-1),
    labels=np.array([example.labels[0] for example in examples], np.int32),
    mask=np.ones(BATCH, np.float32),
  )


@functools.cache
def losses(family, *, steps=STEPS, data=1, fsdp=1, scan=False):
  """The loss of each step; the first parameters do not depend on the other arguments."""
  model, optimizer = models.create(**OPTIONS[family], num_classes=10), optim.make(CONFIG.optimizer)
  params = modules.parameters(model, digits()["image"] / np.float32(127.5) - 1, train=False)
  if scan:
    model, params = dataclasses.replace(model, scan=True), stack_blocks(params)
  zero = np.int32(0)
  current = train_step.TrainState(
    step=zero,
    params=params,
    optimizer=optimizer.init(params),
    ema=None,
    extra={},
    bad_examples=zero,
    skipped=zero,
  )
  devices = jax.devices()[: data * fsdp]
  split = c.Mesh(data=data, fsdp=fsdp)
  mesh = meshes.make(split, batch_size=len(devices), accumulation=1, devices=devices)
  current = jax.device_put(current, meshes.shardings(mesh, current, params))
  batch = jax.device_put(digits(), meshes.batch_sharding(mesh))
  made = train_step.make(
    Classification(model), optimizer, RATE, CONFIG.optimizer, seed=CONFIG.seed, accumulation=1
  )
  step = jax.jit(meshes.on(mesh, made))
  history = []
  for _ in range(steps):
    current, metrics = step(current, batch)
    history.append(float(metrics["loss"]))
  return history


@pytest.mark.parametrize("family", OPTIONS)
def test_images_of_integers_are_refused_before_anything_is_computed(family):
  """Their pixels are not in [-1, 1], and all classes would be wrong without a word."""
  model = models.create(**OPTIONS[family], num_classes=10)
  of_type = lambda kind: jax.ShapeDtypeStruct((1, SIZE, SIZE, 3), kind)
  init = lambda images: model.init(jax.random.key(0), images, train=False)
  variables = jax.eval_shape(init, of_type(np.float16))
  apply = lambda images: model.apply(variables, images, train=False, method="features")
  for function, kind in ((apply, np.uint8), (apply, np.bool_), (init, np.int32)):
    with pytest.raises(ValueError, match=rf"are {np.dtype(kind)}; .* give images / 127\.5 - 1"):
      jax.eval_shape(function, of_type(kind))


@TRAINED
def test_learns(family):
  history = losses(family)
  assert np.mean(history[-3:]) < 0.6 * np.mean(history[:3])


@TRAINED
def test_eight_devices_and_stacked_blocks_train_alike(family):
  actual = losses(family, steps=3, data=2, fsdp=4, scan=family in TRANSFORMERS)
  # After more than two updates, rounding decides where ties in a max-pooling fall.
  np.testing.assert_allclose(actual, losses(family)[:3], rtol=2e-5)


def start(family, **options):
  """A model, and parameters of which none is 0."""
  model = models.create(**OPTIONS[family] | options, num_classes=10)
  return model, modules.parameters(model, IMAGES, train=False)


@pytest.mark.parametrize("family", ["hybrid", "axial ResNet"])  # which have the others' layers
def test_bfloat16_gives_logits_near_those_of_float32(family):
  model, params = start(family)
  exact, _ = modules.run(model, params, IMAGES)
  logits, _ = modules.run(model.clone(dtype=jnp.bfloat16), params, IMAGES)
  assert 1e-6 < np.abs(logits - exact).max() < 0.05 * np.abs(exact).max()


@COMPUTED
def test_logits_of_bfloat16_are_float32(family):
  model, params = start(family, dtype=jnp.bfloat16)
  logits, features = jax.eval_shape(lambda p: modules.run(model, p, IMAGES), params)
  assert logits.dtype == jnp.float32
  assert features["patches"].dtype == features["pre_logits"].dtype == jnp.bfloat16


@COMPUTED
def test_all_convolutions_are_bfloat16_where_it_is_asked_for(family):
  model, params = start(family, dtype=jnp.bfloat16)
  text = str(jax.make_jaxpr(lambda p: modules.run(model, p, IMAGES))(params))
  types = re.findall(r"(\w+)\[[\d,]+\] = conv_general_dilated", text)
  assert set(types) == (set() if family == "ViT" else {"bf16"})


@COMPUTED
def test_remat_changes_no_operation_of_the_forward_pass(family):
  model, params = start(family)
  program = lambda model: modules.run.lower(model, params, IMAGES).as_text()
  expected = program(model)
  for policy in ("dots", "everything"):
    assert program(model.clone(remat=policy)) == expected


def test_remat_changes_neither_outputs_nor_gradients():
  """In float64: in float32, rounding decides about a ReLU at zero, which is 9% of a gradient."""
  with jax.enable_x64(True):
    model, params = start("hybrid", depth=1, dtype=jnp.float64)  # a block and a residual unit
    params = jax.tree.map(np.float64, params)
    expected, wanted = modules.logits_and_grads(model, params, IMAGES)
    actual, grads = modules.logits_and_grads(model.clone(remat="everything"), params, IMAGES)
  np.testing.assert_allclose(actual, expected, atol=1e-5)
  modules.assert_close(grads, wanted)


@COMPUTED
def test_remat_keeps_less(family):
  model, params = start(family)
  kept = lambda remat: modules.kept(model.clone(remat=remat), params, IMAGES)
  assert kept("everything") <= kept("dots") < 0.8 * kept("none")
