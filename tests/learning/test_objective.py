"""Properties of all objectives, tested with one that has no labels but its own metrics."""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import resolved
from tests.learning import steps
from tests.learning.hidden_channel import Hidden, HiddenChannel
from vit_jax import config as c
from vit_jax.devices import mesh as meshes
from vit_jax.extras.compiled import compilation
from vit_jax.learning import optim, train_step
from vit_jax.learning.optimizers.adam import Adam
from vit_jax.learning.optimizers.sgd import SGD
from vit_jax.recipes import cost
from vit_jax.training.steps import START, ImageCount

SIDE, SIZE = 4, 16
HIDES = HiddenChannel(None)
batch = functools.partial(steps.batch, size=SIZE, side=SIDE, broken=(2, 3, 9))
CONFIG = resolved.config(batch_size=SIZE, optimizer=SGD(ema=0.5))


def run(batches, objective=HIDES, *, side=SIDE, mesh=steps.ONE, accumulation=1):
  """The first state, the state after each batch, and the metrics of each batch."""
  optimizer = optim.make(CONFIG.optimizer)
  init = functools.partial(
    train_step.init_state, objective, optimizer, seed=0, image_size=side, with_ema=True
  )
  abstract = train_step.abstract_state(init, mesh)
  first = steps.created(init, abstract)
  states, history = [train_step.with_given(first, objective, abstract)], []
  made = train_step.make(
    objective,
    optimizer,
    lambda _: 0.1,
    CONFIG.optimizer,
    seed=CONFIG.seed,
    accumulation=accumulation,
  )
  step = jax.jit(meshes.on(mesh, made))
  for one in batches:
    after, metrics = step(states[-1], jax.device_put(one, meshes.batch_sharding(mesh)))
    states.append(after)
    history.append(jax.device_get(metrics))
  return jax.device_get(states), history


BATCHES = [batch(seed) for seed in range(3)]


@functools.cache
def alone():
  return run(BATCHES)


def test_sums_are_the_same_however_the_batch_is_divided():
  divided = run(BATCHES, mesh=steps.mesh_of(8, 1), accumulation=2)
  for actual, wanted in zip(divided, alone(), strict=True):
    chex.assert_trees_all_close(actual, wanted, rtol=1e-5, atol=1e-7)


def test_loss_metrics_and_update_against_numpy():
  (before, after, *_), (metrics, *_) = alone()
  key = jax.random.fold_in(jax.random.key(CONFIG.seed), 0)
  one = HIDES.prepare(BATCHES[0], key)
  hidden = np.eye(3)[np.array(one["hidden"])]
  images, kept = np.float64(one["image"]) / 255, one["mask"] > 0
  seen = (images * (1 - hidden[:, None, None])).reshape(SIZE, -1)
  told = seen @ np.float64(before.params["teller"]["kernel"])
  error = np.sum((told - images.mean(axis=(1, 2))) * hidden, axis=-1)
  red = kept & (hidden[:, 0] > 0)
  assert 0 < red.sum() < kept.sum()  # metrics are divided by counts of their own
  np.testing.assert_allclose(metrics["loss"], np.mean(error[kept] ** 2), rtol=1e-5)
  np.testing.assert_allclose(metrics["training/error"], np.abs(error[kept]).mean(), rtol=1e-5)
  np.testing.assert_allclose(metrics["training/error_red"], np.abs(error[red]).mean(), rtol=1e-5)
  slope = 2 * seen[kept].T @ (error[kept, None] * hidden[kept]) / kept.sum()
  moved = after.params["teller"]["kernel"] - before.params["teller"]["kernel"]
  np.testing.assert_allclose(moved, -0.1 * slope, rtol=1e-4, atol=1e-7)


def test_a_metric_of_nothing_is_not_a_number_and_leaves_the_run_alone():
  """If all images are broken, the loss is 0 and there is no error."""
  (before, after), (metrics,) = run([batch(broken=range(SIZE))])
  assert metrics["loss"] == 0
  assert np.isnan(metrics["training/error"])
  assert (int(metrics["skipped"]), int(metrics["bad_examples"])) == (0, SIZE)
  chex.assert_trees_all_equal(after.params, before.params)


def test_mixed_precision_keeps_parameters_and_sums_in_float32():
  states, history = run(BATCHES, HiddenChannel(None, jnp.bfloat16))
  assert {x.dtype for x in jax.tree.leaves(states[-1].params)} == {np.dtype("float32")}
  for half, full in zip(history, alone()[1], strict=True):
    assert {x.dtype for x in half.values()} <= {np.dtype("float32"), np.dtype("int32")}
    assert 0 < abs(half["training/error"] - full["training/error"]) < 0.02 * full["training/error"]


# --- through the loop ---

HIDDEN = resolved.config(
  batch_size=32,
  duration=c.Duration(steps=6),
  objective=Hidden(),
  model=c.Model(name="ViT-Ti/4", depth=1, width=16, mlp_dim=16, heads=2, num_classes=10),
  optimizer=Adam(ema=0.75),
  data=c.Data(train=c.Dataset("digits", "train"), image_size=8),
)


@pytest.mark.parametrize("needs_labels", [False, True])
def test_batches_hold_what_the_objective_needs(needs_labels, monkeypatch):
  monkeypatch.setattr(Hidden, "needs_labels", needs_labels)
  made = resolved.run(HIDDEN, jax.devices()[:1])
  reader = made.reader.training(made.data.train, parts=made.data.parts, seed=0, start=0)
  batch = next(reader)
  reader.close()
  assert batch.keys() == made.abstract_batch().keys()
  assert batch.keys() == {"image", "mask"} | ({"labels"} if needs_labels else set())


def test_the_pod_compiler_and_the_cost_are_of_the_objective():
  program = compilation.compile_step(HIDDEN, jax.devices())
  assert program.fits
  assert program.argument_bytes < 20_000  # parameters, average and images alone
  assert cost.training_flops(HIDDEN) == HIDES.training_flops(8)


def test_a_step_takes_its_values_from_the_images_so_far():
  adam = Adam(weight_decay=0.1, end_weight_decay=0.4)
  schedule = c.Schedule(learning_rate=0.1, warmup=c.Duration(steps=2))
  config = dataclasses.replace(
    HIDDEN, duration=c.Duration(examples=640), optimizer=adam, schedule=schedule
  )

  def values(size, taken=START, ahead=0):
    made = resolved.run(
      dataclasses.replace(config, batch_size=size), jax.devices()[:1], taken=taken
    )
    state = made.init()
    state = dataclasses.replace(state, step=state.step + taken.step + ahead)
    batch = jax.tree.map(lambda x: np.ones(x.shape, x.dtype), made.abstract_batch())
    metrics = jax.device_get(made.update(state, batch)[1])
    return metrics["learning_rate"], metrics["weight_decay"]

  later = ImageCount(10, 320, first_batch=32)
  np.testing.assert_allclose(values(16, later, 4), values(32, ImageCount(12, 384)), rtol=1e-6)
