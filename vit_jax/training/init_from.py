"""Parameters to start a run from (config.init_from), fitted to its model."""

import dataclasses
import re
from collections.abc import Collection, Sequence

import jax
import jax.numpy as jnp
import optax

from vit_jax import weights
from vit_jax.config import Config, ConfigError, Model, RunError, Size, sides
from vit_jax.config.model import FIXED_POSITIONS
from vit_jax.config.resolve import asked_of
from vit_jax.data import classes
from vit_jax.devices import mesh as meshes
from vit_jax.inference import model as inference
from vit_jax.learning import optim
from vit_jax.learning.objective import OBJECTIVE_PARAMS, Objective, initial_shapes
from vit_jax.learning.train_step import TrainState, new_extra
from vit_jax.models.recognition import differences
from vit_jax.models.stacking import stack_blocks, unstack_blocks
from vit_jax.process.text import listed
from vit_jax.registry import PARAMETRIZATIONS
from vit_jax.storage.base import raised_as
from vit_jax.storage.paths import path_of
from vit_jax.storage.tree import flatten, nest
from vit_jax.weights.card import parameters_in_words
from vit_jax.weights.positions import with_fixed_positions

RENEWED = ("new_head", "new_positions", "keep_representation")  # settings that drop parameters
AS_IT_IS = classes.HeadOrder(None, "")


@dataclasses.dataclass(frozen=True)
class Initial:
  """The parameters that a run starts from.

  Attributes:
    params: NumPy arrays in the tree of the run's model, without those to be initialised.
    report: a table of which parameters were taken, resized, dropped and new.
  """

  params: dict
  report: str


def with_learned_positions(model: inference.LoadedModel, settings: Model) -> inference.LoadedModel:
  """The same model; if its positions are fixed and the run's learned, these begin as the fixed.

  So does the fine-tuning of He et al. (2022) with the weights of their masked autoencoders.

  Args:
    model: of the weights.
    settings: config.model.

  Raises:
    ValueError: the size of the images of the weights is not known.
  """
  read = model.read
  if settings.positions != "1d" or model.card.model.positions not in FIXED_POSITIONS:
    return model
  params = with_fixed_positions(read.params, model.card)
  learned = dataclasses.replace(model.card.model, positions=settings.positions)
  card = dataclasses.replace(model.card, model=learned)
  return inference.of_weights(dataclasses.replace(read, params=params, card=card), settings)


def _naming(init_from: str):
  """Names the setting in the errors of weights that cannot be used."""
  words = lambda error: f"config.init_from={init_from}: {error}"
  return raised_as(ConfigError, words, ValueError, OSError, RunError)


def weights_of(config: Config) -> weights.Weights:
  """Reads config.init_from.

  Raises:
    ConfigError: the path does not exist, or its content is not the kind of file its name says.
  """
  with _naming(config.init_from):
    return weights.read(path_of(config.init_from))


def read_initial(
  config: Config,
  objective: Objective,
  class_names: Sequence[str],
  source: weights.Weights | None = None,
) -> Initial:
  """Reads config.init_from and fits it to the model; nothing is put on a device.

  Args:
    config: the settings.
    objective: the objective of the run.
    class_names: the classes of the training data.
    source: the weights, if they were read already.

  Raises:
    ConfigError: the path does not exist, its content is not the kind of file its name says, the
      weights do not fit the model, or they were trained without a head and no new one is asked for.
  """
  path = path_of(config.init_from)
  settings = config.model
  source = source or weights_of(config)
  with _naming(config.init_from):
    loaded = inference.of_weights(source, settings, asked_of(config).model)
    model = with_learned_positions(loaded, settings)
    as_pooled = dataclasses.replace(model, module=model.module.pooled_as(objective.model))
    as_pooled.check_is(dataclasses.replace(settings, channels=model.module.channels))
    order = AS_IT_IS
    if config.objective.trains_head and not config.new_head:
      check_head(model.read.params)
      order = head_order(config.class_names, model.read, class_names)
    params, rows = fitted(
      model.read.params,
      objective,
      config.data.image_size,
      old_grid=model.stored_grid(),
      outputs=order.outputs,
      position_resizing=config.position_resizing,
      **{name: getattr(config, name) for name in RENEWED},
    )
    if settings.scan:
      params = stack_blocks(params)
  start = f"the {parameters_in_words(model.card.average)} of {path}"
  report = f"Started from {start}: {weights.table(rows)}"
  if model.read is not source:
    report += "\n  learned  position embeddings, which begin as the fixed ones of the weights"
  if other := differences(model.module, as_pooled.module):
    report += f"\n  pooling  {'; '.join(other)}"
  if order.description:
    report += f"\n  classes  {order.description}"
  return Initial(params, report)


def head_order(
  setting: str, source: weights.Weights, class_names: Sequence[str]
) -> classes.HeadOrder:
  """The order in which the head's outputs become the data's classes; `AS_IT_IS` for another head.

  Args:
    setting: config.class_names.
    source: the weights.
    class_names: the classes of the training data.

  Raises:
    ValueError: the head has other classes than the data, or `setting` names the classes of a head
      that cannot be kept.
  """
  bias = source.params.get("head", {}).get("bias")
  outputs = 0 if bias is None else len(bias)
  if outputs != len(class_names):
    if setting:
      raise ValueError(
        f"config.class_names={setting!r} names the classes of a head that is kept, but the weights "
        f"have a head of {outputs} classes and the data {len(class_names)}; leave it out."
      )
    return AS_IT_IS
  try:
    order = classes.of_head(setting, source.class_names(), class_names)
  except classes.OtherClasses as error:
    raise ValueError(
      f"the head is of other classes than the data: {error}. Take a new head with "
      "--config.new_head=True; or, if the classes are the same under other names, say in which "
      "order with --config.class_names=FILE (a name a line), or =data for the data's own order."
    ) from error
  if order.known:
    return order
  advice = "; --config.new_head=True takes a new head"
  return dataclasses.replace(order, description=order.description + advice)


def check_head(params: dict):
  """Refuses self-supervised weights, which have no head, where a classifier is needed.

  Raises:
    ValueError: the weights have no head.
  """
  if OBJECTIVE_PARAMS in params and "head" not in params:
    raise ValueError(
      "these weights were trained without labels and have no head; take a new one with "
      "--config.new_head=True."
    )


def fitted(params: dict, objective: Objective, size: Size, **options) -> tuple[dict, list]:
  """The parameters in the shapes of the run's, and a report row for each; of the model alone.

  Args:
    params: a tree in this project's names, with blocks unstacked.
    objective: the objective of the run.
    size: of the images in pixels.
    **options: passed to `weights.fit`: how to treat the head and the positions.

  Raises:
    ValueError: they do not fit.
  """
  initial = initial_shapes(objective, size)
  of_model = {name: tree for name, tree in initial.items() if name not in PARAMETRIZATIONS}
  wanted = jax.eval_shape(unstack_blocks, of_model)
  grid = objective.model.grid(*sides(size))
  options |= dict(per_class=objective.per_class(), new_pooling=True)
  return weights.fit(params, wanted, grid, **options)


def check_trained(new: Collection[str], trainable: str):
  """Refuses parameters that the weights lack and that stay at their random values.

  Biases and scales begin without effect, and LoRA has its own rule (`lora.check_trained`).

  Args:
    new: the names of the parameters that do not come from the weights.
    trainable: the regex of the whole names of the parameters that are trained.

  Raises:
    ConfigError: some are frozen.
  """
  frozen = sorted(name for name in new if _is_random(name) and not re.fullmatch(trainable, name))
  if frozen:
    modules = dict.fromkeys(re.match(r"(Transformer/)?[^/]+", name)[0] for name in frozen)
    wider = "|".join([trainable, *(f"{module}/.*" for module in modules)])
    raise ConfigError(
      f"config.init_from has no {listed(frozen)}, and the run would not train them: it trains what "
      f"matches {trainable!r}. Add them with --config.optimizer.trainable='{wider}', or keep the "
      "model of the weights."
    )


def _is_random(name: str) -> bool:
  module, *_, kind = name.split("/")
  return module not in PARAMETRIZATIONS and kind not in ("bias", "scale")


def put(
  initial: Initial,
  state: TrainState,
  objective: Objective,
  optimizer: optax.GradientTransformation,
  trainable: str,
) -> TrainState:
  """Replaces the parameters of a fresh state, and everything derived from them.

  Every process puts its own share of each array on its devices.

  Args:
    initial: the parameters.
    state: the freshly initialised state.
    objective: the objective of the run; its extra state may depend on the parameters.
    optimizer: the optimizer of the run; its state may depend on the parameters too.
    trainable: the regex of the whole names of the parameters that are trained.
  """
  loaded = flatten(initial.params)
  initialised = flatten(state.params)

  def replaced(name, fresh):
    if name not in loaded:
      return fresh
    return meshes.place(loaded[name], fresh.sharding)

  params = nest({name: replaced(name, fresh) for name, fresh in initialised.items()})

  def copied(old, new):  # the average needs copies: donated buffers must not be shared
    return None if old is None else jnp.copy(new)

  ema = jax.tree.map(copied, state.ema, params, is_leaf=lambda x: x is None)

  def made_from(params):
    return optimizer.init(optim.partition(params, trainable)), new_extra(objective, params)

  shardings = jax.tree.map(lambda x: x.sharding, (state.optimizer, state.extra))
  moments, extra = jax.jit(made_from, out_shardings=shardings)(params)
  extra |= {name: state.extra[name] for name in objective.given()}
  return dataclasses.replace(state, params=params, optimizer=moments, ema=ema, extra=extra)
