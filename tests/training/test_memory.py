"""As few parts of a batch as fit into the memory of a device."""

import dataclasses
import functools
import types

import chex
import jax
import numpy as np
import pytest

from tests import resolved, tiny_run
from vit_jax import launch
from vit_jax.config import AUTO, Duration, Mesh, Schedule
from vit_jax.config.resolve import resolve
from vit_jax.devices.hosts import Hosts
from vit_jax.evaluation.classification import Classification
from vit_jax.learning.optimizers.sgd import SGD
from vit_jax.process.console import StopRequest
from vit_jax.storage import checkpoint
from vit_jax.training import pace, start
from vit_jax.training import run as runs

# Little to compile. The rate of a step does not depend on the length of a run.
CONFIG = dataclasses.replace(
  tiny_run.CONFIG,
  model=dataclasses.replace(tiny_run.CONFIG.model, dropout=0.0),
  optimizer=SGD(ema=0.0),
  schedule=Schedule(learning_rate=1e-3, warmup=Duration(), decay="constant"),
  mesh=Mesh(),
)
DEVICES = jax.devices()[:2]
MESH = dict(data=2, fsdp=1, model=1)


@functools.cache
def known():
  return dataclasses.replace(resolved.with_data(CONFIG, DEVICES), accumulation=AUTO)


@functools.cache
def data():
  return runs.open_data(known())


def made(config):
  return runs.make(config, data(), DEVICES)


class Measured:
  """Stands for a run of two devices whose step needs 82 bytes in one part, or is refused."""

  def __init__(self, config, limit, refused=0):
    stats = lambda: {"bytes_limit": limit}
    device = types.SimpleNamespace(platform="gpu", memory_stats=stats)
    self.mesh = types.SimpleNamespace(devices=np.array([device]), shape=MESH)
    self.config, self._refused = config, refused

  def lowered(self):
    if self.config.accumulation <= self._refused:
      raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: 9 bytes")
    return self

  def compile(self):
    return self

  def memory_analysis(self):
    sizes = dict(argument=50, temp=30, output=41, alias=40, generated_code=1)
    parts = self.config.accumulation
    return types.SimpleNamespace(**{f"{key}_size_in_bytes": n / parts for key, n in sizes.items()})


@pytest.mark.parametrize(
  ("limit", "refused", "parts"),
  [(10**9, 0, 1), (82, 0, 1), (81, 0, 2), (13, 0, 8), (1, 0, 16), (100, 1, 2)],
)
def test_parts_are_doubled_until_a_step_fits(limit, refused, parts):
  """A batch of 32 on two devices has 16 parts at the most; the compiler's refusal is no end."""
  measured = lambda config: Measured(config, limit, refused)
  run = made(resolve(known(), {"parts": lambda config: pace.fewest_parts(config, measured)}))
  assert run.config.accumulation == run.reader.accumulation == parts
  assert dict(run.config.origins)["accumulation"].startswith("a step needs ")


def test_more_parts_need_less_and_a_second_state_of_verified_steps_counts():
  one, eight = (made(dataclasses.replace(known(), accumulation=parts)) for parts in (1, 8))
  assert pace.step_bytes(eight) < pace.step_bytes(one)
  assert pace.memory_of(jax.devices()[0]) * jax.local_device_count() > 2**30
  verified = dataclasses.replace(one.config, verify_every=9)
  assert pace.step_bytes(Measured(one.config, 0)) == 82
  assert pace.step_bytes(Measured(verified, 0)) == 122
  assert pace.step_bytes(Measured(verified, 0, refused=1)) == float("inf")


@pytest.mark.usefixtures("one_device")
def test_a_run_with_chosen_parts_is_that_with_given_ones(monkeypatch, tmp_path):
  """And a run that goes on keeps its number, whatever the memory is then."""

  def train(name, accumulation, steps, limit=0):
    changes = dict(evaluate={}, accumulation=accumulation, duration=Duration(steps=steps))
    config = dataclasses.replace(CONFIG, **changes)
    monkeypatch.setattr(pace, "memory_of", lambda device: limit)
    launch.launch(config, tmp_path / name, StopRequest(), mode="train", hosts=Hosts())
    return checkpoint.load_params(checkpoint.find(tmp_path / name), ema=False)

  monkeypatch.setattr(pace, "step_bytes", lambda run: 2 / run.config.accumulation)
  train("chosen", AUTO, steps=2, limit=1)
  chosen = train("chosen", AUTO, steps=3, limit=10**9)
  chex.assert_trees_all_equal(chosen, train("given", 2, steps=3))


def test_parts_that_other_devices_cannot_compute_are_chosen_anew(monkeypatch, tmp_path):
  """Parts of two images are none for four devices; scoring does not depend on parts."""
  devices = jax.devices()
  monkeypatch.setattr(pace, "memory_of", lambda device: 1)
  monkeypatch.setattr(pace, "step_bytes", lambda run: 8 / run.config.accumulation / run.mesh.size)

  def recorded(steps, count):
    changes = dict(batch_size=16, evaluate={}, accumulation=AUTO, duration=Duration(steps=steps))
    monkeypatch.setattr(jax, "devices", lambda *_: devices[:count])
    config = dataclasses.replace(CONFIG, **changes)
    launch.launch(config, tmp_path, StopRequest(), mode="train", hosts=Hosts())
    return start.read_recorded(tmp_path).config

  begun = recorded(steps=1, count=1)
  assert begun.accumulation == 8
  monkeypatch.setattr(jax, "devices", lambda *_: devices[:4])
  scored = dataclasses.replace(begun, evaluate={"test": Classification("digits", "test")})
  launch.launch(scored, tmp_path, StopRequest(), mode="evaluate", hosts=Hosts())
  again = recorded(steps=2, count=4)
  assert (again.accumulation, again.derived.count("accumulation")) == (2, 1)
