"""The time that a run will take, from its first steps."""

import contextlib
import dataclasses
import types

import jax
import pytest

from tests import resolved, tiny_run
from vit_jax.learning.classification import Settings
from vit_jax.training import pace


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
    init=None,
    abstract=None,
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
  monkeypatch.setattr(pace.states, "create", lambda init, abstract: 0)
  monkeypatch.setattr(pace.time, "monotonic", clock)
  return clock


def test_compiling_is_not_timed_and_waiting_for_images_is(clock):
  assert pace.step_seconds(run_of(clock), clock) == 5


def test_what_is_left_counts(clock):
  assert pace.scored_images(run_of(clock)) == 10 * 80
  assert pace.scored_images(run_of(clock, evaluate=300, scored=(80, 20))) == 4 * 100
  assert pace.scored_images(run_of(clock, evaluate=0)) == 80
  assert pace.scored_images(run_of(clock, step=650)) == 4 * 80


def test_the_time_of_a_run(clock, monkeypatch):
  monkeypatch.setattr(pace, "step_seconds", lambda run: 5.0)
  assert pace.expected_seconds(run_of(clock)) == 5 * (1000 + 0.5 * 800 / 8)
  assert pace.expected_seconds(run_of(clock, total=20)) is None


def test_too_little_memory_is_left_to_the_run_itself(clock, monkeypatch):
  def fails(run):
    raise MemoryError

  monkeypatch.setattr(pace, "step_seconds", fails)
  assert pace.expected_seconds(run_of(clock)) is None


def test_timing_changes_nothing_in_the_run():
  """Its batches begin at the beginning again, and its state is another one."""
  config = dataclasses.replace(tiny_run.CONFIG, objective=Settings())  # which compiles in half
  run = resolved.run(config, jax.devices()[:1])
  longer = dataclasses.replace(run, steps=dataclasses.replace(run.steps, total=40))
  with run.batches() as batches:
    before = jax.device_get(next(batches))
  assert 0 < pace.expected_seconds(longer) < 60
  with run.batches() as batches:
    after = jax.device_get(next(batches))
  assert jax.tree.all(jax.tree.map(lambda a, b: (a == b).all(), before, after))
