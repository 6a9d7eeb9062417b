"""Parameters to start a run from (config.init_from), fitted to its model."""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from vit_jax import models, weights
from vit_jax.config import Config, ConfigError, RunError
from vit_jax.config.reading import expanded
from vit_jax.data import classes
from vit_jax.learning.state import TrainState
from vit_jax.models.stacking import stack_blocks
from vit_jax.storage.tree import flatten, nest

# What tells one model of this project from another, apart from its head.
FIELDS = (
  *("patch", "depth", "width", "mlp_dim", "heads", "stages", "stem_width", "axial", "pool"),
  *("positions", "position_place", "activation", "norm_epsilon"),
)


@dataclasses.dataclass(frozen=True)
class Initial:
  """What was read.

  Attributes:
    params: NumPy arrays in the tree of the run's model, without those that are to be new.
    report: what was taken, resized, dropped and new, as a table.
  """

  params: dict
  report: str


def read(config: Config, class_names: Sequence[str]) -> Initial:
  """Reads config.init_from and fits it to the model; nothing is put on a device.

  Args:
    config: the settings.
    class_names: of the training data.

  Raises:
    ConfigError: nothing is there, it is not what its name says, or it does not fit.
  """
  path = expanded(config.init_from)
  try:
    found = weights.read(path)
    model, whole = config.model, dataclasses.replace(found, params=with_head(found.params))
    untold = dict(activation=model.activation, norm_epsilon=model.norm_epsilon)
    check_model(weights.module(whole, **untold), config)
    order = head_order(config, found, class_names)
    params, rows = fitted(config, found.params, order.outputs)
  except (ValueError, OSError, RunError) as error:
    raise ConfigError(f"config.init_from={config.init_from}: {error}") from error
  said = f"\n  classes  {order.said}" if order.said else ""
  return Initial(params=params, report=f"Started from {path}: {weights.table(rows)}{said}")


def head_order(config: Config, read: weights.Weights, class_names: Sequence[str]) -> classes.Order:
  """How the head of weights becomes that of the data; nothing is said of a head that is not kept.

  Raises:
    ValueError: the head is of other classes.
  """
  bias = read.params.get("head", {}).get("bias")
  if config.new_head or bias is None or len(bias) != len(class_names):
    return classes.Order(None, "")
  try:
    order = classes.of_head(config.class_names, read.class_names(), class_names)
  except classes.OtherClasses as error:
    raise ValueError(
      f"the head is of other classes than the data: {error}. Take a new head with "
      "--config.new_head=True; or, if the classes are the same under other names, say in which "
      "order with --config.class_names=FILE (a name a line), or =data for the data's own order."
    ) from error
  advice = "; --config.new_head=True takes a new head" if not order.known else ""
  return dataclasses.replace(order, said=order.said + advice)


def with_head(params: dict) -> dict:
  """The parameters; where they have no head, with one of zeros for one class, as features need."""
  norm = params.get("resnet", {}).get("group_norm") or params.get("Transformer", {}).get(
    "encoder_norm"
  )
  if "head" in params or not norm:
    return params
  width = len(norm["scale"])
  head = {"kernel": np.zeros((width, 1), np.float32), "bias": np.zeros(1, np.float32)}
  return params | {"head": head}


def check_model(told, config: Config):
  """The weights are of the config's model, whatever their head.

  Raises:
    ValueError: names every setting that differs.
  """
  wanted = models.configured(config.model)
  kinds = type(told).__name__, type(wanted).__name__
  differing = ["they are a {} there and a {} here".format(*kinds)] * (kinds[0] != kinds[1]) or [
    f"{field} is {getattr(told, field, None)} there and {getattr(wanted, field, None)} here"
    for field in FIELDS
    if getattr(told, field, None) != getattr(wanted, field, None)
  ]
  if differing:
    raise ValueError(
      f"these weights are not of a {config.model.name} as config.model describes it: "
      f"{'; '.join(differing)}; name their model (config.model.name) and what it differs in, by "
      "settings such as --config.model.depth=12 or --config.model.activation=gelu."
    )


def fitted(config: Config, params: dict, outputs=None) -> tuple[dict, list]:
  """Parameters with blocks apart as the config's model has them, and what became of each.

  Args:
    config: the settings.
    params: our tree, blocks apart.
    outputs: as in `weights.fit`.

  Raises:
    ValueError: they do not fit.
  """
  apart = dataclasses.replace(config, model=dataclasses.replace(config.model, scan=False))
  module, side = models.configured(apart.model), config.data.image_size
  grid = module.grid(side, side) if isinstance(module, models.ViT) else None
  params, rows = weights.fit(params, shapes(apart), grid, new_head=config.new_head, outputs=outputs)
  return stack_blocks(params) if config.model.scan else params, rows


def shapes(config: Config) -> dict:
  """The parameters of the config's model as shapes and types."""
  module, side = models.configured(config.model), config.data.image_size
  images = jnp.zeros((1, side, side, 3))
  return jax.eval_shape(lambda: module.init(jax.random.key(0), images, train=False))["params"]


def put(initial: Initial, state: TrainState) -> TrainState:
  """A fresh state with its parameters, and their moving average, replaced by those that were read.

  Every process puts its own share of each array on its devices.
  """
  read_arrays, own = flatten(initial.params), flatten(state.params)

  def replaced(name, fresh):
    if name not in read_arrays:
      return fresh
    array = read_arrays[name]
    return jax.make_array_from_callback(array.shape, fresh.sharding, lambda index: array[index])

  params = nest({name: replaced(name, fresh) for name, fresh in own.items()})
  # Copies, because donated buffers must not be shared.
  copied = lambda old, new: None if old is None else jnp.copy(new)
  ema = jax.tree.map(copied, state.ema, params, is_leaf=lambda x: x is None)
  return dataclasses.replace(state, params=params, ema=ema)
