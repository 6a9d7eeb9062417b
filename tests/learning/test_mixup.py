"""MixUp against NumPy, for any division of the batch; broken images affect no others."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import resolved
from tests.learning import steps
from vit_jax import config as c
from vit_jax.devices import mesh as meshes
from vit_jax.learning import mixing, optim, train_step
from vit_jax.learning.classification import Classification, Settings
from vit_jax.learning.optimizers.sgd import SGD

SIZE, CLASSES, RATE = 16, 5, 0.5
CONFIG = resolved.config(
  seed=3,
  batch_size=SIZE,
  optimizer=SGD(momentum=0.0, decay_rules=((".*", 0.0),)),
  loss=c.Loss(label_smoothing=0.1),
  objective=Settings(mixup=0.4),
)
batch = functools.partial(steps.batch, size=SIZE, side=2, broken=(2, 3, 9))
KERNEL = np.random.default_rng(1).normal(size=(12, CLASSES)).astype(np.float32)


class Linear:
  """A model of one matmul."""

  dtype = jnp.float32

  def apply(self, variables, images, *, train, rngs):
    del train, rngs
    return images.reshape(len(images), -1) @ variables["params"]["kernel"], {}


def step(config, one, *, at=7, devices=1):
  """Loss and kernel after update number `at` of a run."""
  optimizer, zero = optim.make(config.optimizer), jnp.zeros((), jnp.int32)
  mesh = meshes.make(
    c.Mesh(), batch_size=SIZE, accumulation=config.accumulation, devices=jax.devices()[:devices]
  )
  params = jax.device_put({"kernel": KERNEL}, meshes.replicated(mesh))
  moments = optimizer.init(params)
  first = train_step.TrainState(jnp.int32(at), params, moments, None, {}, zero, zero)
  update = update_of(config.objective, config.accumulation)
  after, metrics = update(first, jax.device_put(one, meshes.batch_sharding(mesh)))
  return np.array(metrics["loss"]), np.array(after.params["kernel"])


@functools.cache
def update_of(objective, accumulation):
  """The step, compiled once."""
  return jax.jit(
    train_step.make(
      objective.configured(CONFIG, Linear()),
      optim.make(CONFIG.optimizer),
      lambda _: RATE,
      CONFIG.optimizer,
      seed=CONFIG.seed,
      accumulation=accumulation,
    )
  )


def share_of(config, at):
  """The share drawn in step `at`."""
  key = jax.random.fold_in(jax.random.key(config.seed), at)
  return np.float64(mixing.mixup(batch(broken=()), key, config.objective.mixup)["share"])


def in_numpy(config, one, at):
  """The same in NumPy with float64; the targets are blended before the loss."""
  (share,) = set(share_of(config, at))
  shares = np.where(one["mask"][::-1] > 0, share, 1.0)[:, None]
  x = ((np.float64(one["image"]) - 127.5) / 127.5).reshape(SIZE, -1)
  targets = np.eye(CLASSES)[one["labels"]]
  x = shares * x + (1 - shares) * x[::-1]
  targets = shares * targets + (1 - shares) * targets[::-1]
  smoothing = config.loss.label_smoothing
  targets = (1 - smoothing) * targets + smoothing / CLASSES
  logits = x @ np.float64(KERNEL)
  logs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
  weights = one["mask"] / one["mask"].sum()
  gradient = x.T @ ((np.exp(logs) - targets) * weights[:, None])
  return -(targets * logs).sum(axis=-1) @ weights, KERNEL - RATE * gradient


@pytest.mark.parametrize(("devices", "accumulation"), [(1, 1), (8, 1), (4, 2)])
def test_a_step_against_numpy_however_it_is_divided(devices, accumulation):
  config, one = dataclasses.replace(CONFIG, accumulation=accumulation), batch()
  loss, kernel = step(config, one, devices=devices)
  wanted_loss, wanted_kernel = in_numpy(config, one, 7)
  np.testing.assert_allclose(loss, wanted_loss, rtol=1e-5)
  np.testing.assert_allclose(kernel, wanted_kernel, rtol=1e-4, atol=1e-5)
  unmixed = step(dataclasses.replace(config, objective=Settings()), one)
  assert abs(loss - unmixed[0]) > 1e-3


def test_each_image_of_several_labels_has_its_share_whatever_their_number():
  several = np.random.default_rng(0).integers(0, 2, (SIZE, CLASSES), np.uint8)
  several[0] = 0
  paired = mixing.mixup(batch() | {"labels": several}, jax.random.key(0), 0.4)
  of_labels = lambda labels: jnp.float32(labels) @ jnp.arange(1.0, 6.0)
  share = np.float64(paired["share"])
  wanted = several @ np.arange(1.0, 6.0)
  wanted = share * wanted + (1 - share) * wanted[::-1]
  np.testing.assert_allclose(mixing.blend(of_labels, paired), wanted, rtol=1e-6)


def test_shares_never_change():
  """Otherwise a run would not go on with a later release as it began."""
  drawn = [share_of(CONFIG, at)[0] for at in range(3)]
  np.testing.assert_allclose(drawn, [0.699672, 0.508881, 0.999992], rtol=1e-5)


@pytest.mark.parametrize("alpha", [0.1, 1.0])
def test_shares_have_the_moments_of_a_beta_distribution(alpha):
  one = batch(broken=())
  draw = jax.jit(jax.vmap(lambda key: mixing.mixup(one, key, alpha)["share"][0]))
  shares = np.float64(draw(jax.random.split(jax.random.key(0), 4000)))
  variance = 1 / (4 * (2 * alpha + 1))
  assert np.isfinite(shares).all()
  assert abs(shares.mean() - 0.5) < 4 * np.sqrt(variance / 4000)
  assert abs(shares.var() / variance - 1) < 0.1


def test_without_mixup_the_batch_is_as_it_was():
  one = batch()
  assert mixing.mixup(one, jax.random.key(0), 0.0) is one
  assert mixing.mixed_images(one) is one["image"]


def test_every_label_of_a_blended_image_may_be_true():
  """The binary cross-entropy of both labels, in NumPy; an image with its own share 1 has one."""
  loss = c.Loss(kind="sigmoid", over_classes="mean")
  objective = Classification(Linear(), loss, mixup=0.4, blended="whole")
  prepared = objective.prepare(batch(), jax.random.key(0))
  sums = objective.loss({"kernel": KERNEL}, {}, prepared, jax.random.key(1))
  images = np.float64(mixing.mixed_images(prepared)) / 127.5 - 1
  logits = images.reshape(SIZE, -1) @ np.float64(KERNEL)
  target = np.eye(CLASSES)[prepared["labels"]]
  both = np.asarray(prepared["share"]) < 1
  assert both.any()
  assert not both.all()
  target[both] = np.maximum(target, np.eye(CLASSES)[prepared["partner_labels"]])[both]
  values = (np.logaddexp(0, logits) - target * logits).mean(axis=1)
  np.testing.assert_allclose(sums.loss, (values * prepared["mask"]).sum(), rtol=1e-4)
  np.testing.assert_array_equal(mixing.whole_targets(lambda x: x, dict(labels=target)), target)
