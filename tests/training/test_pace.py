"""The time that a run will take, from its first steps."""

import contextlib
import dataclasses
import functools
import types

import jax
import jax.numpy as jnp
import pytest

from tests import resolved, tiny_run
from vit_jax.training import pace

HERE = jax.sharding.SingleDeviceSharding(jax.devices()[0])


class Clock:
  """Seconds that pass when something is done."""

  now = 0.0

  def __call__(self):
    return self.now


def run_of(clock, *, total=1000, step=0, evaluate=100, scored=(80,)):
  """A run whose batches take 3 seconds each, and whose steps take 2; the first step 50 more."""

  @contextlib.contextmanager
  def batches():
    def some():
      while True:
        clock.now += 3
        yield "batch"

    yield some()

  def update(state, batch):
    clock.now += 2 if state else 52
    return state + 1, {}

  datasets = [types.SimpleNamespace(source=range(images)) for images in scored]
  return types.SimpleNamespace(
    init=lambda: jnp.int32(0),
    abstract=jax.ShapeDtypeStruct((), jnp.int32, sharding=HERE),
    batches=batches,
    update=update,
    config=types.SimpleNamespace(batch_size=8),
    data=types.SimpleNamespace(evaluations=types.SimpleNamespace(datasets=datasets)),
    steps=types.SimpleNamespace(total=total, evaluate=evaluate),
    resume_point=types.SimpleNamespace(step=step),
  )


@pytest.fixture
def clock(monkeypatch):
  clock = Clock()
  timed = functools.partial(pace.step_seconds, clock=clock)
  monkeypatch.setattr(pace, "step_seconds", timed)
  return clock


@pytest.mark.parametrize(
  ("changes", "steps", "scored"),
  [
    ({}, 1000, 10 * 80),
    (dict(evaluate=300, scored=(80, 20)), 1000, 4 * 100),
    (dict(evaluate=0), 1000, 80),
    (dict(step=650), 350, 4 * 80),
  ],
)
def test_the_time_of_what_is_left(clock, changes, steps, scored):
  """Compiling is not timed; waiting for images is."""
  found = pace.expected_seconds(run_of(clock, **changes))
  assert found == 5 * (steps + 0.5 * scored / 8)
  assert pace.expected_seconds(run_of(clock, total=20)) is None


def test_too_little_memory_is_left_to_the_run_itself(clock):
  def lacks_memory(state, batch):
    raise MemoryError

  run = run_of(clock)
  run.update = lacks_memory
  assert pace.expected_seconds(run) is None


def test_timing_changes_nothing_in_the_run():
  """Its batches begin at the beginning again, and its state is another one."""
  config = tiny_run.CONFIG
  run = resolved.run(config, jax.devices()[:1])
  longer = dataclasses.replace(run, steps=dataclasses.replace(run.steps, total=40))
  with run.batches() as batches:
    before = jax.device_get(next(batches))
  assert 0 < pace.expected_seconds(longer) < 60
  with run.batches() as batches:
    after = jax.device_get(next(batches))
  assert jax.tree.all(jax.tree.map(lambda a, b: (a == b).all(), before, after))
