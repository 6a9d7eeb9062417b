"""A run's update is compiled while other work is done, and once."""

import dataclasses

import chex
import jax
import pytest

from tests import resolved, tiny_run
from vit_jax.config import Duration, Mesh, Schedule
from vit_jax.learning import train_step
from vit_jax.learning.optimizers.sgd import SGD

CONFIG = dataclasses.replace(
  tiny_run.CONFIG,
  optimizer=SGD(ema=0.0),
  schedule=Schedule(learning_rate=1e-3, warmup=Duration(), decay="constant"),
  mesh=Mesh(),
)
COMPILED = "/jax/core/compile/backend_compile_duration"


@pytest.fixture
def events():
  """The names of what JAX has traced, lowered and compiled since the last `clear`."""
  seen = []
  listen = lambda name, _, **others: seen.append(name)
  jax.monitoring.register_event_duration_secs_listener(listen)
  yield seen
  jax.monitoring.unregister_event_duration_listener(listen)


def state_and_batch(run):
  with run.batches() as batches:
    return train_step.create_state(run.init, run.abstract), next(batches)


def test_a_call_takes_what_the_thread_has_compiled(events):
  run = resolved.run(CONFIG, jax.devices()[:2])
  with run.compiling() as update:
    arguments = state_and_batch(run)
  assert COMPILED in events
  events.clear()
  result = update(*arguments)
  assert not events
  chex.assert_trees_all_equal(result, run.update(*state_and_batch(run)))


def test_a_run_without_a_step_left_compiles_nothing(monkeypatch):
  run = dataclasses.replace(resolved.run(CONFIG, jax.devices()[:1]), left=False)
  monkeypatch.setattr(type(run), "lowered", None)
  with run.compiling() as update:
    assert update is run.update


def test_what_the_compiler_refuses_is_raised_by_the_call(monkeypatch):
  run = resolved.run(CONFIG, jax.devices()[:1])
  error = jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory")

  def refuse(*_):
    raise error

  refuse.lower = refuse
  monkeypatch.setitem(run.__dict__, "update", refuse)
  with run.compiling() as update, pytest.raises(jax.errors.JaxRuntimeError) as raised:
    update(None, None)
  assert raised.value is error
