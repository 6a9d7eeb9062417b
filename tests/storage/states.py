"""A small state, and checkpoints of it."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from tests import resolved
from vit_jax import config as c
from vit_jax import models
from vit_jax.devices import mesh as meshes
from vit_jax.learning import optim, state
from vit_jax.learning.classification import Classification
from vit_jax.learning.optimizers.adam import Adam
from vit_jax.storage import saving

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
    state.init,
    Classification(models.create(**MODEL | model)),
    optim.make(optimizer or Adam()),
    seed=0,
    image_size=8,
    with_ema=ema,
  )
  return init, state.abstract(init, on or mesh(1, 1))


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
  return saving.Checkpoints(folder, keep_last=keep_last, keep_every=keep_every)


def saved(folder, *steps, **options):
  checkpoints = opened(folder, **options)
  for step in steps:
    checkpoints.save(at_step(step), META)
  checkpoints.close()


def until_it_is_saved(checkpoints, step):
  """As a run does: a save of which TensorStore does not learn that it was written is made again."""
  for _ in range(5):
    checkpoints.save(at_step(step), META)
    checkpoints.wait()
    if not (failure := checkpoints.outcome()):
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
