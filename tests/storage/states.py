"""A small state, and checkpoints of it."""

import contextlib
import dataclasses
import functools
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import resolved
from vit_jax import config as c
from vit_jax import models, registry
from vit_jax.devices import mesh as meshes
from vit_jax.learning import optim, train_step
from vit_jax.learning.classification import Classification
from vit_jax.learning.optimizers.adam import Adam
from vit_jax.storage import saving as checkpoints_of
from vit_jax.storage.local import LOCAL
from vit_jax.storage.paths import HERE

MODEL = dict(name="ViT-Ti/4", depth=1, width=64, mlp_dim=256, heads=2, num_classes=3)
CONFIG = c.to_dict(resolved.config())
META = {
  "config": CONFIG,
  "class_names": ["ant", "bee", "cat"],
  "representation": "pre_logits",
  "trained_on": [],
}


def mesh(data, fsdp, model=1):
  devices = jax.devices()[: data * fsdp * model]
  split = c.Mesh(data=data, fsdp=fsdp, model=model)
  return meshes.make(split, batch_size=len(devices), accumulation=1, devices=devices)


def abstract(on=None, optimizer=None, ema=True, **model):
  init = functools.partial(
    train_step.init_state,
    Classification(models.create(**MODEL | model)),
    optim.make(optimizer or Adam()),
    seed=0,
    image_size=8,
    with_ema=ema,
  )
  return init, train_step.abstract_state(init, on or mesh(1, 1))


@functools.cache
def example():
  """A state on eight devices, drawn on the host: nothing is compiled for it."""
  _, shapes = abstract(mesh(2, 4))
  draw = np.random.default_rng(0)
  made = jax.tree.map(
    lambda x: jax.device_put(draw.normal(size=x.shape).astype(x.dtype), x.sharding), shapes
  )
  return dataclasses.replace(made, step=jnp.int32(7), bad_examples=jnp.int32(2))


def at_step(step):
  return dataclasses.replace(example(), step=jnp.int32(step))


def no_changes(saved):
  return []


def opened(folder, keep_last=3, keep_every=0):
  return checkpoints_of.Checkpoints(folder, keep_last=keep_last, keep_every=keep_every)


def saved(folder, *steps, **options):
  checkpoints = opened(folder, **options)
  for step in steps:
    checkpoints.save(at_step(step), META)
  checkpoints.close()


def until_it_is_saved(checkpoints, step):
  """As a run does: a save of which TensorStore does not learn that it was written is made again."""
  for _ in range(5):
    if not (failure := saving(checkpoints, step)):
      return
  raise OSError(failure)


def restore(folder, shapes=None):
  checkpoints = opened(folder)
  try:
    return checkpoints.restore(shapes or abstract(mesh(2, 4))[1], META["class_names"], no_changes)
  finally:
    checkpoints.close()


def flip_a_bit(folder):
  path = max((folder / "state").rglob("*"), key=lambda p: p.stat().st_size * p.is_file())
  data = bytearray(path.read_bytes())
  data[len(data) // 2] ^= 1
  path.write_bytes(data)


class Watched(type(LOCAL)):
  """The storage of this machine, which records what makes files last, appear or go.

  Args:
    fails: by the name of a method the end of a path, for which it fails as on a full disk.
    before: called before a file whose path ends so is opened for the n-th time, `opening`.
  """

  def __init__(self, fails=None, before=None, opening=("", 0)):
    self.calls, self._opened = [], 0
    self._fails, self._before = fails or {}, before
    self._name, self._number = opening

  def record(self, name, path, *more):
    if name in self._fails and str(path).endswith(self._fails[name]):
      raise OSError(28, "No space left on device")
    self.calls.append((name, path, *more))

  def open(self, path):
    self._opened += str(path).endswith(self._name)
    if self._opened == self._number and str(path).endswith(self._name):
      self._before()
    return super().open(path)

  def make_folder(self, path):
    self.record("make_folder", path)
    super().make_folder(path)

  def put(self, partial, path, *, new):
    self.record("put", path)
    super().put(partial, path, new=new)

  def sync(self, path):
    self.record("sync", pathlib.Path(path))

  def rename(self, path, target):
    self.record("rename", path, target)
    super().rename(path, target)

  def remove(self, path):
    self.record("remove", path)
    super().remove(path)


@contextlib.contextmanager
def watched(**options):
  """Lets files of this machine be those of a `Watched` storage, and gives it."""
  storage = Watched(**options)
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(registry, "STORAGES", {HERE: storage})
    yield storage


def saving(checkpoints, step, **options):
  """Saves a step, and returns how it ended."""
  checkpoints.save(at_step(step), META, **options)
  checkpoints.wait()
  return checkpoints.outcome()
