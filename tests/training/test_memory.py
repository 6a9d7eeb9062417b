"""As few parts of a batch as fit into the memory of a device."""

import dataclasses
import types

import chex
import jax
import pytest

from tests import resolved, tiny_run
from vit_jax import launch
from vit_jax.config import AUTO, Duration, Mesh, Schedule
from vit_jax.config.resolve import resolve
from vit_jax.devices.hosts import Hosts
from vit_jax.learning.classification import Settings
from vit_jax.process.signals import StopRequest
from vit_jax.storage import checkpoint
from vit_jax.training import memory
from vit_jax.training import run as runs

# Without MixUp, whose draws take as long to compile as the rest. The rate of a step does not depend
# on the length of a run.
CONFIG = dataclasses.replace(
  tiny_run.CONFIG,
  objective=Settings(),
  schedule=Schedule(learning_rate=1e-3, warmup=Duration(), decay="constant"),
  mesh=Mesh(),
)
DEVICES = jax.devices()[:2]
KNOWN = dataclasses.replace(resolved.with_data(CONFIG, DEVICES), accumulation=AUTO)
DATA = runs.open_data(KNOWN)


def made(config):
  return runs.make(config, DATA, DEVICES)


def make(parts):
  return made(dataclasses.replace(KNOWN, accumulation=parts))


@pytest.mark.parametrize(
  ("limit", "parts"), [(10**9, 1), (32, 1), (31, 2), (5, 8), (1, 16), (float("inf"), 1)]
)
def test_parts_are_doubled_until_a_step_fits(monkeypatch, limit, parts):
  """A batch of 32 on two devices has 16 parts at the most; the compiler's refusal is no end."""
  needed = lambda run: float("inf") if run.config.accumulation == 1 and limit < 32 else 32
  bytes_of = lambda run: needed(run) / run.config.accumulation
  monkeypatch.setattr(memory, "step_bytes", bytes_of)
  monkeypatch.setattr(memory, "memory_of", lambda device: limit)
  known = {"parts": lambda config: memory.fewest_parts(config, made)}
  run = made(resolve(KNOWN, known))
  assert run.config.accumulation == parts
  assert run.reader.accumulation == parts
  assert dict(run.config.origins)["accumulation"].startswith("a step needs ")


def test_more_parts_need_less_and_the_compilers_refusal_is_understood(monkeypatch):
  run = make(1)
  assert memory.step_bytes(make(8)) < memory.step_bytes(run)
  assert memory.memory_of(jax.devices()[0]) * jax.local_device_count() > 2**30

  class Refused:
    def lower(self, *_):
      raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: 9 bytes")

  monkeypatch.setitem(vars(run), "update", Refused())
  assert memory.step_bytes(run) == float("inf")


def test_a_second_state_of_verified_steps_counts(monkeypatch):
  class Compiled:
    lower = compile = lambda self, *_: self

    def memory_analysis(self):
      sizes = dict(argument=50, temp=30, output=41, alias=40, generated_code=1)
      return types.SimpleNamespace(**{f"{kind}_size_in_bytes": n for kind, n in sizes.items()})

  run = make(1)
  verified = dataclasses.replace(run, config=dataclasses.replace(run.config, verify_every=9))
  for each, needed in ((run, 82), (verified, 122)):
    monkeypatch.setitem(vars(each), "update", Compiled())
    assert memory.step_bytes(each) == needed


@pytest.mark.usefixtures("one_device")
def test_a_run_with_chosen_parts_is_that_with_given_ones(monkeypatch, tmp_path):
  """And a run that goes on keeps its number, whatever the memory is then."""

  def train(name, accumulation, steps, limit=0):
    changes = dict(evaluate={}, accumulation=accumulation, duration=Duration(steps=steps))
    config = dataclasses.replace(CONFIG, **changes)
    monkeypatch.setattr(memory, "memory_of", lambda device: limit)
    launch.launch(config, tmp_path / name, StopRequest(), mode="train", hosts=Hosts())
    return checkpoint.load_params(checkpoint.find(tmp_path / name), ema=False)

  monkeypatch.setattr(memory, "step_bytes", lambda run: 2 / run.config.accumulation)
  train("chosen", AUTO, steps=2, limit=1)
  chosen = train("chosen", AUTO, steps=3, limit=10**9)
  chex.assert_trees_all_equal(chosen, train("given", 2, steps=3))
