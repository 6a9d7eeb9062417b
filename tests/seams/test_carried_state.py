"""What an objective carries on beside the parameters: a toy with a teacher and a centre.

The parameters are a linear layer (the student). The teacher is their moving average, and the centre
that of its outputs, over all images that count.
"""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vit_jax import config as c
from vit_jax.devices import mesh as meshes
from vit_jax.learning import optim, train_step
from vit_jax.learning.objective import Objective, Sums
from vit_jax.learning.optimizers.sgd import SGD
from vit_jax.training import init_from

MOMENTUM, SIDE, OUTPUTS = 0.5, 8, 128  # so many outputs that arrays are split over fsdp


@dataclasses.dataclass(frozen=True)
class Taught(Objective):
  """The mean squared difference from the teacher's outputs, less their centre."""

  model: object = None

  def init(self, key, image_size):
    kernel = jax.random.normal(key, (image_size * image_size * 3, OUTPUTS)) / 100
    return {"layer": {"kernel": kernel}}

  def begin(self, params):
    return {"teacher": params, "centre": jnp.zeros(OUTPUTS), "updates": jnp.zeros((), jnp.int32)}

  def prepare(self, batch, key):
    return batch

  def loss(self, params, extra, batch, key):
    del key
    pixels = batch["image"].reshape(len(batch["mask"]), -1) / jnp.float32(255)
    taught, mask = pixels @ extra["teacher"]["layer"]["kernel"], batch["mask"]
    error = pixels @ params["layer"]["kernel"] - (taught - extra["centre"] + 1)
    count = mask.sum()
    return Sums(jnp.sum((error**2).mean(-1) * mask), count, {}, (mask @ taught, count))

  def after_update(self, params, extra, statistics):
    follow = lambda old, new: old + MOMENTUM * (new - old)
    total, count = statistics
    return {
      "teacher": jax.tree.map(follow, extra["teacher"], params),
      "centre": follow(extra["centre"], total / count),
      "updates": extra["updates"] + 1,
    }

  def training_flops(self, image_size):
    return 6 * image_size * image_size * 3 * OUTPUTS


OPTIMIZER = SGD(momentum=0.0, ema=0.0)
RATE = 0.1


def batches(count=3, size=16):
  rng = np.random.default_rng(0)
  for _ in range(count):
    image = rng.integers(0, 256, (size, SIDE, SIDE, 3), np.uint8)
    yield dict(image=image, mask=np.float32(rng.permutation(size) > 2))


def started(data=1, fsdp=1, parts=1):
  """The first state, and the compiled step."""
  objective, optimizer = Taught(), optim.make(OPTIMIZER)
  split = dict(batch_size=16, accumulation=parts, devices=jax.devices()[: data * fsdp])
  mesh = meshes.make(c.Mesh(data=data, fsdp=fsdp), **split)
  init = functools.partial(
    train_step.init_state, objective, optimizer, seed=0, image_size=SIDE, with_ema=False
  )
  abstract = train_step.abstract_state(init, mesh)
  made = train_step.make(
    objective, optimizer, lambda _: RATE, OPTIMIZER, seed=0, accumulation=parts
  )
  step = train_step.jit_step(made, mesh=mesh, abstract=abstract)
  put = lambda batch: jax.device_put(batch, meshes.batch_sharding(mesh))
  return train_step.create_state(init, abstract), lambda current, batch: step(current, put(batch))[
    0
  ]


def in_numpy(first):
  """The same steps in float64."""
  student = teacher = np.float64(first["layer"]["kernel"])
  centre = np.zeros(OUTPUTS)
  for batch in batches():
    x, mask = np.float64(batch["image"]).reshape(16, -1) / 255, np.float64(batch["mask"])
    taught = x @ teacher
    error = x @ student - (taught - centre + 1)
    student = student - RATE * x.T @ (2 * error * mask[:, None]) / OUTPUTS / mask.sum()
    teacher = teacher + MOMENTUM * (student - teacher)
    centre = centre + MOMENTUM * (mask @ taught / mask.sum() - centre)
  return student, teacher, centre


@pytest.mark.parametrize(
  ("data", "fsdp", "parts"), [(1, 1, 1), (1, 1, 4), (8, 1, 1), (1, 8, 1), (2, 4, 2)]
)
def test_it_is_updated_alike_on_all_devices_and_in_parts(data, fsdp, parts):
  first, step = started(data, fsdp, parts)
  student, teacher, centre = in_numpy(jax.device_get(first.params))
  found = functools.reduce(step, batches(), first)
  np.testing.assert_allclose(found.params["layer"]["kernel"], student, rtol=2e-5, atol=1e-6)
  np.testing.assert_allclose(
    found.extra["teacher"]["layer"]["kernel"], teacher, rtol=2e-5, atol=1e-6
  )
  np.testing.assert_allclose(found.extra["centre"], centre, rtol=2e-5, atol=1e-5)
  assert found.extra["updates"] == 3
  kernels = found.params["layer"]["kernel"], found.extra["teacher"]["layer"]["kernel"]
  assert kernels[0].sharding == kernels[1].sharding
  assert bool(any(kernels[1].sharding.spec)) == (fsdp > 1)


def test_it_stays_where_the_update_is_left_out():
  current, step = started()
  *some, last = batches()
  current = functools.reduce(step, some, current)
  centre = current.extra["centre"]
  spoiled = jax.device_put(np.full(OUTPUTS, np.nan, np.float32), centre.sharding)
  current = dataclasses.replace(current, extra=current.extra | {"centre": spoiled})
  found = step(current, last)
  assert (found.skipped, found.extra["updates"]) == (1, 2)


@pytest.mark.parametrize("fsdp", [1, 8])
def test_it_is_made_of_the_weights_that_a_run_starts_from(fsdp):
  fresh, step = started(fsdp=fsdp)
  params = jax.tree.map(lambda x: np.array(x) + 1, fresh.params)
  initial = init_from.Initial(params, "")
  first = init_from.put(initial, fresh, Taught(), optim.make(OPTIMIZER), ".*")
  chex.assert_trees_all_equal(jax.device_get(first.extra["teacher"]), params)
  student, teacher, _ = in_numpy(params)
  found = functools.reduce(step, batches(), first)  # its arrays are donated, so none may be shared
  np.testing.assert_allclose(found.params["layer"]["kernel"], student, rtol=2e-5, atol=1e-5)
  np.testing.assert_allclose(found.extra["teacher"]["layer"]["kernel"], teacher, rtol=2e-5)
