"""Weights of classes in the loss against NumPy, however the batch is divided; refusals."""

import dataclasses
import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import resolved
from tests.learning import steps
from tests.learning.test_mixup import KERNEL, Linear
from vit_jax import config as c
from vit_jax.config import recorded
from vit_jax.data import datasets
from vit_jax.devices import mesh as meshes
from vit_jax.learning import mixing, optim, train_step
from vit_jax.learning.classification import Classification, Settings
from vit_jax.learning.optimizers.sgd import SGD
from vit_jax.training import checks, facts
from vit_jax.training import run as runs

SIZE, CLASSES, RATE = 16, 5, 0.5
WEIGHTS = (0.05, 2.0, 0.0, 1.0, 0.25)
PLAIN = SGD(momentum=0.0, decay_rules=((".*", 0.0),), ema=0.0, trainable=".*")
batch = functools.partial(steps.batch, size=SIZE, side=2, broken=(2, 3, 9))


def in_numpy(objective, one):
  """Sum of the weighted losses and of the weights, and the gradient of the first, in float64.

  Each of the two images of a mix has its own weighted loss.
  """
  smoothing = objective.settings.label_smoothing
  x = ((np.float64(mixing.mixed_images(one)) - 127.5) / 127.5).reshape(SIZE, -1)
  logits = x @ np.float64(KERNEL)
  loss, gradient, total = 0.0, 0.0, 0.0
  shares = [(one["labels"], np.float64(one.get("share", np.ones(SIZE))))]
  if "share" in one:
    shares.append((one["partner_labels"], 1 - np.float64(one["share"])))
  for labels, share in shares:
    target = np.eye(CLASSES)[labels]
    if objective.settings.kind == "softmax":
      target = (1 - smoothing) * target + smoothing / CLASSES
      logs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
      losses, error = -(target * logs).sum(axis=-1), np.exp(logs) - target
    else:
      target = (1 - smoothing) * target + smoothing / 2
      losses = (np.log1p(np.exp(logits)) - target * logits).sum(axis=-1)
      error = 1 / (1 + np.exp(-logits)) - target
    weight = share * np.float64(WEIGHTS)[labels] * one["mask"]
    loss, total = loss + weight @ losses, total + weight.sum()
    gradient = gradient + x.T @ (error * weight[:, None])
  return loss, total, gradient


def objective_of(kind, **options):
  loss = c.Loss(kind=kind, label_smoothing=0.1)
  return Classification(Linear(), loss, class_weights=WEIGHTS, **options)


def test_a_step_divides_by_the_weights_of_all_devices_and_parts():
  objective, one = objective_of("softmax"), batch()
  optimizer, zero = optim.make(PLAIN), jnp.zeros((), jnp.int32)
  mesh = steps.mesh_of(4, 1)
  params = jax.device_put({"kernel": KERNEL}, meshes.replicated(mesh))
  first = train_step.TrainState(zero, params, optimizer.init(params), None, {}, zero, zero)
  update = train_step.make(objective, optimizer, lambda _: RATE, PLAIN, seed=3, accumulation=2)
  after, metrics = jax.jit(update)(first, jax.device_put(one, meshes.batch_sharding(mesh)))
  loss, total, gradient = in_numpy(objective, one)
  np.testing.assert_allclose(metrics["loss"], loss / total, rtol=1e-5)
  wanted = KERNEL - RATE * gradient / total
  np.testing.assert_allclose(after.params["kernel"], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("total", [0.0, 0.25, 8.0])
def test_weights_may_add_up_to_less_than_one(total):
  def sums(*_):
    return (jnp.float32(3.0), (jnp.float32(total), {}, ())), {"kernel": jnp.float32(2.0)}

  loss, grads, *_ = train_step.means(sums, {}, {}, None, 1)
  assert (float(loss), float(grads["kernel"])) == (3 / (total or 1), 2 / (total or 1))


def mixed(seed=0):
  """A batch with partners and shares, as MixUp and CutMix prepare it."""
  one, other = batch(seed), batch(seed + 1)
  share = np.float32(np.random.default_rng(seed).uniform(0, 1, SIZE))
  partners = {"partner_image": other["image"], "partner_labels": other["labels"]}
  return one | partners | {"share": share}


def sums(objective, one):
  return objective.loss({"kernel": KERNEL}, {}, one, None)


@pytest.mark.parametrize("kind", ["softmax", "sigmoid"])
def test_a_mix_is_the_blend_of_its_weighted_losses(kind):
  one = mixed()
  found = sums(objective_of(kind), one)
  loss, total, _ = in_numpy(objective_of(kind), one)
  np.testing.assert_allclose([found.loss, found.count], [loss, total], rtol=1e-5)
  right, count = found.metrics["accuracy"]
  assert count == one["mask"].sum()  # it is not weighted
  assert right == sums(Classification(Linear()), one).metrics["accuracy"][0]


def test_whole_targets_of_a_mix_have_the_blend_of_its_weights():
  one, options = mixed(), dict(settings=c.Loss(kind="sigmoid"), blended="whole")
  found = sums(Classification(Linear(), class_weights=WEIGHTS, **options), one)
  plain = Classification(Linear(), **options)
  each = [sums(plain, one | {"mask": np.float32(np.arange(SIZE) == i)}).loss for i in range(SIZE)]
  share, w = np.float64(one["share"]), np.float64(WEIGHTS)
  w = one["mask"] * (share * w[one["labels"]] + (1 - share) * w[one["partner_labels"]])
  np.testing.assert_allclose([found.loss, found.count], [w @ each, w.sum()], rtol=1e-5)


def test_the_loss_is_that_of_torch():
  """cross_entropy(logits, labels, weight=w) of torch 2.15.0 in float64."""
  logits = [[1.0, -0.5, 0.25, 2.0, 0.0], [0.5, 0.5, -1.0, 0.0, 1.5], [-2.0, 1.0, 0.0, 0.5, 1.0]]

  class Given(Linear):
    def apply(self, variables, images, *, train, rngs):
      return jnp.array(logits), {}

  weights = (0.05, 2.0, 0.5, 1.0, 0.25)
  one = dict(image=np.zeros((3, 2, 2, 3), np.uint8), labels=np.array([3, 0, 1]), mask=np.ones(3))
  found = sums(Classification(Given(), class_weights=weights), one)
  assert found.loss / found.count == pytest.approx(0.9389344321998488, rel=1e-6)


# --- from the images of each class ---


def asked(weights="auto", **fields):
  """Settings of a run on the digits, of which most ones are left out by drawing few images."""
  data = dict(train=c.Dataset("digits", "train", subset=50), image_size=8) | fields.pop("data", {})
  return resolved.config(
    batch_size=8,
    duration=c.Duration(epochs=1),
    model=c.Model(name="ViT-Ti/4", depth=1, width=8, mlp_dim=8, heads=2, num_classes=10),
    objective=dataclasses.replace(fields.pop("objective", Settings()), class_weights=weights),
    data=c.Data(**data),
    **fields,
  )


def test_balanced_weights_are_those_of_scikit_learn_and_are_recorded():
  """n / (K n_c), as compute_class_weight("balanced") has it."""
  config = resolved.with_data(asked())
  training, _ = runs.open_training(config)
  counts = np.bincount([training.source.labels(i)[0] for i in range(50)], minlength=10)
  assert counts.min() < counts.max()
  np.testing.assert_allclose(config.objective.class_weights, 50 / (10 * counts), rtol=1e-12)
  made = config.objective.configured(config, Linear())
  assert made.class_weights == config.objective.class_weights
  assert dict(config.origins)["objective.class_weights"] == "the number of images of each class"
  again = recorded.from_record(json.loads(json.dumps(c.to_dict(config))))
  assert again.objective == config.objective


def test_shares_of_a_mix_are_those_of_the_images_that_are_drawn():
  """A source counts by its weight; a class without images has the weight 1."""
  train = c.Weighted("digits", "train", subset=50, weight=3.0)
  config = asked(data=dict(train=c.Dataset(), mix={"a": train, "b": c.Weighted("digits", "test")}))
  training, _ = runs.open_training(config)
  shares = datasets.class_shares(training, threads=1)
  parts = [np.bincount([s.labels(i)[0] for i in range(len(s))]) for s in sources_of(training)]
  wanted = sum(w * part / part.sum() for w, part in zip((0.75, 0.25), parts, strict=True))
  np.testing.assert_allclose(shares, wanted, rtol=1e-12)
  rule = resolved.without_data(asked(), class_shares=[0.5, 0.0, 0.25, 0.25])
  np.testing.assert_allclose(rule.objective.class_weights, [2 / 3, 1, 4 / 3, 4 / 3])


def sources_of(training):
  return [named.source for named in training.datasets]


@pytest.mark.parametrize(
  ("weights", "fields", "message"),
  [
    ((1.0, "2"), {}, r"class_weights=\(1\.0, '2'\) must be numbers from 0 to"),
    ((0.0, 0.0), {}, r"must be numbers from 0 to 1e\+06, not all of them 0"),
    ((1.0, 2.0), {}, r"has 2 weights, and there are 10 classes; .* order of their names, or auto"),
    ("auto", dict(data=dict(class_balanced=True)), r"class_balanced=True would make up for rare"),
  ],
)
def test_refusals(weights, fields, message):
  with pytest.raises(c.ConfigError, match=message):
    resolved.checked(asked(weights, **fields))


def test_images_with_any_number_of_labels_are_refused(tmp_path):
  table = tmp_path / "list.csv"
  table.write_text("path,label\n0.png,cat|dog\n1.png,eel\n")
  for name in ("0.png", "1.png"):
    (tmp_path / name).touch()
  config = asked((1.0,) * 3, data=dict(train=c.Dataset(f"csv:{table}")))
  training, _ = runs.open_training(config)
  message = r"class_weights .* one label each, and those of .*any number"
  with pytest.raises(c.ConfigError, match=message):
    config.objective.check_labels(str(training), multi_label=True)
  with pytest.raises(c.ConfigError, match=r"class_weights needs images with one label .*list\.csv"):
    facts.of_data(training, config)["class_shares"](config)


def test_a_run_without_weights_is_checked_as_before():
  checks.check(asked(()), resolved.with_data(asked(())))
