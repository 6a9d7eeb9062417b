"""Steps that train a single number, for cases that models seldom reach."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from tests.learning.steps import mesh_of
from vit_jax.learning import optim, train_step
from vit_jax.learning.objective import Objective, Sums
from vit_jax.learning.optimizers.sgd import SGD

SETTINGS = SGD(momentum=0.0, decay_rules=((".*", 0.0),), ema=0.0)
ONE = mesh_of(1, 1)


class OneNumber(Objective):
  """The loss of every image is the same function of the number, which begins with 0.

  A pair of other numbers, of which nothing depends, can be split over two devices.
  """

  def __init__(self, function):
    self.function = function

  def init(self, key, image_size):
    return {"number": jnp.zeros(()), "pair": jnp.zeros(2)}

  def prepare(self, batch, key):
    return batch

  def loss(self, params, extra, batch, key):
    count = batch["mask"].sum()
    return Sums(self.function(params["number"]) * count, count, {})


def made(function):
  """The step at a rate of 0.5, and the first state."""
  objective, optimizer = OneNumber(function), optim.make(SETTINGS)
  step = train_step.make(objective, optimizer, lambda _: 0.5, SETTINGS, seed=0, accumulation=1)
  init = lambda: train_step.init_state(objective, optimizer, seed=0, image_size=1, with_ema=False)
  return step, init


def moved(function, mask):
  """The state after a step, and its metrics."""
  step, init = made(function)
  return jax.jit(step)(init(), {"mask": np.float32(mask)})


@pytest.mark.parametrize(
  "function",
  [lambda x: x + jnp.inf, jnp.sqrt],
  ids=["infinite loss, finite gradient", "finite loss, infinite gradient"],
)
def test_loss_and_gradient_must_both_be_finite(function):
  after, metrics = moved(function, [1, 1])
  assert np.isfinite(metrics["loss"]) != np.isfinite(metrics["grad_norm"])
  assert (after.params["number"], after.skipped) == (0, 1)


@pytest.mark.parametrize("mask", [[1, 1, 1], [0, 1, 0]])
def test_the_loss_is_the_mean_over_the_images_that_count(mask):
  after, metrics = moved(lambda x: 3 + 2 * x, mask)
  assert (metrics["loss"], metrics["grad_norm"], after.params["number"]) == (3, 2, -1)


def test_the_compiled_step_reuses_the_memory_of_the_old_state():
  step, init = made(lambda x: x)
  abstract = train_step.abstract_state(init, ONE)
  first, batch = (
    train_step.create_state(init, abstract),
    jax.device_put({"mask": np.ones(2, np.float32)}),
  )
  train_step.jit_step(step, mesh=ONE, abstract=abstract)(first, batch)
  assert all(leaf.is_deleted() for leaf in jax.tree.leaves(first))
  assert not batch["mask"].is_deleted()


def test_the_new_state_lies_where_the_old_one_should_have_lain():
  step, init = made(lambda x: x)
  mesh = mesh_of(1, 2)
  whole, split = NamedSharding(mesh, P()), NamedSharding(mesh, P("fsdp"))
  place = lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=split if x.ndim else whole)
  compiled = train_step.jit_step(
    step, mesh=mesh, abstract=jax.tree.map(place, jax.eval_shape(init))
  )
  old = jax.device_put((init(), {"mask": np.ones(2, np.float32)}), whole)
  with pytest.warns(UserWarning, match="donated buffers were not usable"):  # they were whole
    after, metrics = compiled(*old)
  assert after.params["pair"].sharding == split
  assert {x.sharding for x in (*metrics.values(), after.params["number"])} == {whole}


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_a_batch_is_gone_through_in_parts_of_equal_size(parts):
  """Else accumulation would take the memory of the whole batch."""
  sizes = set()

  def add_up(params, part, key):
    sizes.add(len(part["x"]))
    return params * part["x"].sum()

  batch = {"x": jnp.arange(8.0)}
  total = train_step.accumulate(add_up, 3.0, batch, jax.random.key(0), parts)
  assert sizes == {8 // parts}
  assert total == 3 * 28
