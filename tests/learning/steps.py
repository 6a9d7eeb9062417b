"""Steps of a small model on simulated devices."""

import dataclasses
import functools

import jax
import numpy as np

from tests import resolved
from vit_jax import config as c
from vit_jax import models
from vit_jax.devices import mesh as meshes
from vit_jax.learning import optim, train_step
from vit_jax.learning.classification import Classification
from vit_jax.learning.optimizers.adam import Adam

CONFIG = resolved.config(
  batch_size=16,
  model=c.Model(name="ViT-Ti/4", depth=1, width=64, mlp_dim=256, heads=4, num_classes=5),
  # A large epsilon keeps Adam from blowing up the rounding of gradients near 0.
  optimizer=Adam(weight_decay=0.1, clip_norm=1.0, epsilon=1e-3),
)


RATE = optim.learning_rate_schedule(
  learning_rate=0.01, warmup_steps=0, total_steps=10, decay="constant", end_learning_rate=0
)


def changed(config=CONFIG, **groups):
  return dataclasses.replace(
    config,
    **{
      name: dataclasses.replace(getattr(config, name), **value)
      if isinstance(value, dict)
      else value
      for name, value in groups.items()
    },
  )


def batch(seed=0, size=16, masked=3, *, broken=None, side=16):
  """Images, some of which are broken: `masked` that are drawn, or those of `broken`."""
  rng = np.random.default_rng(seed)
  mask, drawn = np.ones(size, np.float32), rng.permutation(size)[:masked]
  mask[drawn if broken is None else list(broken)] = 0
  return dict(
    image=rng.integers(0, 256, (size, side, side, 3), np.uint8),
    labels=rng.integers(0, 5, size, np.int32),
    mask=mask,
  )


@functools.cache
def params_of(model):
  """The first parameters, in the host's memory; compiled once for all optimizers."""
  init = Classification(models.configured(model)).init
  return jax.device_get(jax.jit(init, static_argnums=1)(jax.random.key(0), 16))


def initial(model, optimizer):
  """The first state of a run, as by `train_step.init_state`."""
  params, zero = params_of(model), np.int32(0)
  trained = optim.partition(params, optimizer.trainable)
  moments, ema = optim.make(optimizer).init(trained), trained if optimizer.averages else None
  return train_step.TrainState(zero, params, moments, ema, {}, zero, zero)


def created(init, abstract):
  """The state that `init` makes, on the devices of `abstract`; compiled only for one device."""
  one = train_step.create_state(init, train_step.abstract_state(init, ONE))
  return jax.device_put(one, jax.tree.map(lambda x: x.sharding, abstract))


def placed(config, mesh):
  """The first state of a run on a mesh."""
  model = dataclasses.replace(config.model, remat="none", dropout=0.0)
  first = initial(model, config.optimizer)
  rules = models.configured(model).sharding
  return jax.device_put(first, meshes.shardings(mesh, first, first.params, rules))


def start(config, mesh):
  """Changes all zero kernels and scales, so that every parameter has a gradient at once."""
  first = placed(config, mesh)

  def stirred(path, x):
    if path[-1].key not in ("kernel", "scale") or np.asarray(x).any():
      return x
    return jax.device_put(0.1 * jax.random.normal(jax.random.key(1), x.shape), x.sharding)

  return dataclasses.replace(first, params=jax.tree_util.tree_map_with_path(stirred, first.params))


def made(config, *, norms=train_step.BY_ARRAY):
  """The step of a configuration, not compiled."""
  return train_step.make(
    config.objective.configured(config, models.configured(config.model)),
    optim.make(config.optimizer),
    RATE,
    config.optimizer,
    seed=config.seed,
    accumulation=config.accumulation,
    norms=norms,
  )


def update(config, mesh, *, norms=train_step.BY_ARRAY):
  """The step of a configuration, compiled once: (state, batch in the host's memory)."""
  key = repr(config), mesh, norms
  if key not in COMPILED:
    step = meshes.on(mesh, made(config, norms=norms))
    shardings = jax.tree.map(lambda x: x.sharding, placed(config, mesh))
    COMPILED[key] = jax.jit(step, out_shardings=(shardings, meshes.replicated(mesh)))
  return lambda state, one: COMPILED[key](state, jax.device_put(one, meshes.batch_sharding(mesh)))


def loss_of(config, mesh):
  """(state, batch) -> the loss of the step; the rest of the step is not compiled."""
  step = meshes.on(mesh, made(config))
  loss = jax.jit(lambda state, one: step(state, one)[1]["loss"])
  return lambda state, one: loss(state, jax.device_put(one, meshes.batch_sharding(mesh)))


COMPILED = {}


def run(config, mesh, batches, *, norms=train_step.BY_ARRAY):
  current, step = start(config, mesh), update(config, mesh, norms=norms)
  history = []
  for one in batches:
    current, metrics = step(current, one)
    history.append(jax.device_get(metrics))
  return jax.device_get(current), history


def mesh_of(data, fsdp, model=1):
  devices = jax.devices()[: data * fsdp * model]
  split = c.Mesh(data=data, fsdp=fsdp, model=model)
  return meshes.make(split, batch_size=len(devices), accumulation=1, devices=devices)


ONE = mesh_of(1, 1)


MODEL = models.configured(CONFIG.model)


BATCHES = [batch(seed) for seed in range(5)]
