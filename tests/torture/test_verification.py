"""One of eight devices computes wrongly, in the parameters, the gradients or one replica."""

import contextlib
import dataclasses
import functools
import itertools
import json
import re
import types

import jax
import numpy as np
import pytest
import safetensors.numpy

from tests import miscomputing, resolved, tiny_run
from vit_jax import config as c
from vit_jax.config.fields import switched_on
from vit_jax.devices import mesh
from vit_jax.extras.verification import verification
from vit_jax.learning import train_step
from vit_jax.process.errors import Miscomputed
from vit_jax.registry import CALLBACKS

KINDS = ("parameters", "replica", "gradients", "once")
CASES = (4, 400)


def cases(count: int):
  """(devices that share a copy, kind of fault, its seed)."""
  found = []
  for number in range(count):
    kind, fsdp = KINDS[number % 4], (2, 1)[number // 4 % 2]
    found.append((f"{number}-{kind}-{fsdp}", (fsdp, kind, number)))
  return found


class Verification:
  """The verified update of a run on eight devices; `dispatch` computes a step, wrong or not."""

  def __init__(self, fsdp):
    config = dataclasses.replace(
      tiny_run.CONFIG,
      verify_every=1,
      mesh=c.Mesh(fsdp=fsdp),
      model=dataclasses.replace(tiny_run.CONFIG.model, width=64, mlp_dim=256),
    )
    run = resolved.run(config)
    self.run = dataclasses.replace(run, objective=miscomputing.WrongGradients(run.objective))
    with self.run.batches() as batches:
      self.batch = with_fault(next(batches), 0, slice(0))
    self.dispatch, self.said = lambda update, *arguments: update(*arguments), []
    nothing = lambda *_: contextlib.nullcontext()
    self.session = types.SimpleNamespace(
      monitor=types.SimpleNamespace(paused=nothing, dispatched=nothing),
      writer=types.SimpleNamespace(say=self.said.append),
    )
    sound, made = self.run.update, dataclasses.replace(self.run)
    made.__dict__["update"] = lambda *arguments: self.dispatch(sound, *arguments)
    self.update = verification.Verified(made, self.session, made.update)

  def state(self, steps, update):
    """The state after some steps with the same batch."""
    state = train_step.create_state(self.run.init, self.run.abstract)
    for _ in range(steps):
      state, metrics = update(state, self.batch)
    return jax.device_get((state, metrics))


@functools.cache
def made(fsdp):
  """The verification of a run, and its state after three steps that were verified."""
  found = Verification(fsdp)
  return found, *found.state(3, found.update)


def with_fault(batch, code, rows):
  """The batch with faults in the gradients of some rows."""
  fault = np.zeros(len(batch["mask"]), np.int32)
  fault[rows] = code
  return batch | dict(fault=jax.device_put(fault, batch["mask"].sharding))


@pytest.fixture(autouse=True)
def compiled_once(monkeypatch):
  """The search for wrong devices is compiled once for each run."""
  original = verification.alone
  once = lambda run, rows: ALONE.setdefault(run.mesh, original(run, rows))
  monkeypatch.setattr(verification, "alone", once)


ALONE = {}


def test_a_device_that_computes_wrongly_is_found_and_named(case, tmp_path):
  fsdp, kind, seed = case
  verified, held, _ = made(fsdp)
  rng = np.random.default_rng(seed)
  number = int(rng.integers(8))
  device = verified.run.mesh.devices.flat[number]
  state = jax.device_put(held, mesh.shardings(verified.run.mesh, held, held.params))
  code = miscomputing.code(number, int(rng.integers(20, 31)))
  sound, wrong = verified.batch, with_fault(verified.batch, code, 4 * number + rng.integers(4))
  if kind == "replica":  # wrong since an earlier step; the update would round lower bits away
    state = miscomputing.with_wrong_parameter(state, device, rng, lowest=12)
  computations = itertools.count(1)

  def dispatch(update, state, _):
    second = next(computations) == 2
    after, metrics = update(state, wrong if second and kind in ("gradients", "once") else sound)
    if second and kind == "parameters":
      after = miscomputing.with_wrong_parameter(after, device, rng)
    return after, metrics

  verified.dispatch, verified.session.folder = dispatch, tmp_path
  with pytest.raises(Miscomputed) as error:  # the batch given is that of the search
    verified.update(state, wrong if kind == "gradients" else sound)
  message = str(error.value)
  named = [int(found) for found in re.findall(r"device (\d+) \(", message)]
  assert named == ([] if kind == "once" else [device.id]), message
  assert ("It is not known" in message) == (kind == "once")
  assert "after step 3, the last that was verified," in message
  (folder,) = tmp_path.glob("miscomputed/*/process-0")
  kept = safetensors.numpy.load_file(folder / "values.safetensors")
  for name, sums in json.loads((folder / "checksums.json").read_text()).items():
    copies = [array for found, array in kept.items() if f"/{name}/device-" in found]
    assert {miscomputing.checksum(x) for x in copies} == set(np.ravel(sums)), name


def test_a_sound_run_has_the_same_bits_as_without_verification():
  verified, *end = made(2)
  plain = verified.state(3, verified.run.update)
  jax.tree.map(np.testing.assert_array_equal, tuple(end), plain)
  assert verified.said == [
    "Step 1 was computed twice (config.verify_every), with the same bits on 8 device(s)."
  ]


@pytest.mark.parametrize(
  ("platform", "flags", "refused"),
  [
    ("gpu", "", True),
    ("gpu", "--xla_gpu_deterministic_ops=false", True),
    ("gpu", "--other=1 --xla_gpu_exclude_nondeterministic_ops=true --xla_x=2", False),
    ("gpu", "--xla_gpu_deterministic_ops", False),
    ("tpu", "", False),
  ],
)
def test_gpus_need_kernels_that_give_the_same_bits(monkeypatch, platform, flags, refused):
  monkeypatch.setenv("XLA_FLAGS", flags)
  device = types.SimpleNamespace(platform=platform)
  assert verification.Verification not in switched_on(CALLBACKS, resolved.config())
  assert verification.Verification in switched_on(CALLBACKS, resolved.config(verify_every=5))
  needed = pytest.raises(c.ConfigError, match="needs XLA_FLAGS=")
  with needed if refused else contextlib.nullcontext():
    verification.Verification.check(resolved.config(verify_every=5), device)
