"""As few parts of a batch as fit into the memory of a device."""

import dataclasses
import types

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
  small = dataclasses.replace(CONFIG, evaluate={}, duration=Duration(steps=2))
  train = lambda name, config: launch.launch(
    config, tmp_path / name, StopRequest(), mode="train", hosts=Hosts()
  )
  monkeypatch.setattr(memory, "step_bytes", lambda run: 2 / run.config.accumulation)
  monkeypatch.setattr(memory, "memory_of", lambda device: 1)
  train("chosen", dataclasses.replace(small, accumulation=AUTO))
  monkeypatch.setattr(memory, "memory_of", lambda device: 10**9)
  train("chosen", dataclasses.replace(small, accumulation=AUTO, duration=Duration(steps=3)))
  train("given", dataclasses.replace(small, accumulation=2, duration=Duration(steps=3)))
  ends = [checkpoint.find(tmp_path / name) for name in ("chosen", "given")]
  one, other = (checkpoint.load_params(end, ema=False) for end in ends)
  assert jax.tree.all(jax.tree.map(lambda a, b: (a == b).all(), one, other))


def test_the_memory_of_a_cpu_is_shared_by_its_devices():
  assert memory.memory_of(jax.devices()[0]) * jax.local_device_count() > 2**30
