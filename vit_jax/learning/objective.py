"""The interface between the training step and what a run learns."""

from collections.abc import Mapping
from typing import NamedTuple

from etils import epy

from vit_jax.config.fields import Size, switched_on
from vit_jax.config.learning import ALL
from vit_jax.config.learning import OBJECTIVE_PARAMS as OBJECTIVE_PARAMS
from vit_jax.registry import PARAMETRIZATIONS

with epy.lazy_imports():  # reading settings needs no JAX
  import jax

  from vit_jax import models
  from vit_jax.models import family

PREFIX = "training/"  # of the names of an objective's metrics in metrics.jsonl


def of_model(params: dict) -> dict:
  """The parameters without those of the objective."""
  return {name: tree for name, tree in params.items() if name != OBJECTIVE_PARAMS}


class Sums(NamedTuple):
  """Sums over the examples of a batch, or of a part of it.

  The sums of all parts, on all devices, add up to the sums of the whole batch.

  Attributes:
    loss: scalar, sum of the losses of the examples that count.
    count: scalar, number of examples that count, or the sum of the weights of their losses.
    metrics: {name: (sum, count)}, two scalars each. A metric is its sum over the whole batch,
      divided by its count, and NaN if that count is 0. It is logged as training/NAME.
    statistics: tree of sums for `Objective.after_update`.
  """

  loss: "jax.Array"
  count: "jax.Array"
  metrics: "dict[str, tuple[jax.Array, jax.Array]]"
  statistics: object = ()


class Objective:
  """The training objective of a run; the base class of all objectives.

  `extra` is the state that an objective carries from one step to the next besides the parameters,
  such as a teacher: a tree of arrays, or an empty one. It is saved, split over devices and verified
  like the parameters.

  Attributes:
    model: the network, a Flax module.
  """

  model: object

  def init(self, key: "jax.Array", image_size: Size) -> dict:
    """Fresh parameters, float32, for images of this size; traceable.

    They are the model's; the objective may add its own under `OBJECTIVE_PARAMS`.
    """
    raise NotImplementedError

  def begin(self, params: dict) -> dict:
    """The `extra` of a new run, traceable.

    Args:
      params: the initial parameters, after config.init_from has been loaded.
    """
    del params
    return {}

  def given(self) -> dict:
    """The subtrees of `extra` that no update changes, such as the parameters of a given teacher.

    NumPy arrays, which are put on the devices at each start. Checkpoints leave them out.
    """
    return {}

  def seen(self, extra: dict, average: dict, progress: "jax.Array") -> dict:
    """The `extra` that `loss` gets; by default as it is carried.

    Args:
      extra: of this step.
      average: the moving average of the parameters, such as a teacher; without one, the parameters.
      progress: the fraction of the run that is done, a scalar in [0, 1].
    """
    del average, progress
    return extra

  def prepare(self, batch: dict, key: "jax.Array") -> dict:
    """Adds shared values and random draws to the whole batch, before accumulation divides it.

    Args:
      batch: what the objective's settings ask for: the images of `views`, usually image
        (B, S, S, 3) uint8; the arrays of `fields`; if they have `needs_labels`, labels, (B,) int32
        or (B, K) uint8 indicators; and mask (B,) float32, 0 for broken images.
      key: of the step.

    Returns:
      A dict of arrays whose first axis is the batch's. Make random draws for single examples here,
      because the draws in `loss` depend on how the batch is divided.
    """
    raise NotImplementedError

  def loss(self, params: dict, extra: dict, batch: dict, key: "jax.Array") -> Sums:
    """The sums over a part of a prepared batch, differentiable in `params`.

    Args:
      params: parameters in the form that `init` returns.
      extra: as `seen` returned it.
      batch: some rows of the result of `prepare`. Rows with mask 0 do not count.
      key: of the part: the key of the step, perhaps with the number of the part folded in.
    """
    raise NotImplementedError

  def held(self, changes: dict, progress: "jax.Array") -> dict:
    """The changes of an update, with zeros for parameters that are to stay; by default as they are.

    Their gradients and moments go on meanwhile, so that later updates are of the usual size.

    Args:
      changes: of the trained parameters, with None for the others.
      progress: as for `seen`.
    """
    del progress
    return changes

  def after_update(self, params: dict, extra: dict, statistics) -> dict:
    """The `extra` of the next step; not used if the update is skipped because it is not finite.

    Args:
      params: the parameters after the update.
      extra: of this step.
      statistics: of `Sums`, over the whole batch.
    """
    del params, statistics
    return extra

  def warning(self, metrics: Mapping[str, float]) -> str:
    """What the metrics of a line of metrics.jsonl show to be wrong with the run; "" if nothing."""
    del metrics
    return ""

  def trainable(self, pattern: str) -> str:
    """The regex of the parameters that are trained; `pattern` is config.optimizer.trainable."""
    return pattern

  def per_class(self) -> str:
    """The regex of its own parameters with an element for each class, as the head's bias has."""
    return "(?!)"

  def for_model(self, params: dict) -> dict:
    """The parameters with which the model, and evaluations, compute."""
    return params

  def training_flops(self, image_size: Size) -> int:
    """FLOPs of an update per example, with all its views, if all parameters are trained."""
    raise NotImplementedError


class Parametrization(Objective):
  """An objective around that of a run, with parameters that change those of the model.

  `registry.PARAMETRIZATIONS` lists them. Its own parameters are the subtree of its name there.
  """

  @staticmethod
  def check(config, shapes: dict[str, tuple[int, ...]]):
    """Checks that the settings of a run suit it; `shapes` are those of the model's parameters.

    Raises:
      ConfigError: they do not.
    """

  @classmethod
  def around(cls, objective: Objective, config) -> "Parametrization":
    """The objective with this parametrization."""
    raise NotImplementedError

  @staticmethod
  def merged(params: dict, settings: dict) -> dict:
    """The model's parameters, from NumPy arrays of a run with these recorded settings of it."""
    raise NotImplementedError


def of_config(config, device: "jax.Device | None" = None) -> Objective:
  """What a run with these settings trains, its model included; the one place that makes it.

  Args:
    config: the settings.
    device: one of those that compute; None: shapes alone are wanted.

  Raises:
    ConfigError: the attention that was asked for cannot compute this model on this device.
  """
  model = models.configured(config.model)
  if device is not None:
    family.check_attention(model, config.data.image_size, device)
  objective = config.objective.configured(config, model)
  for parametrization in switched_on(PARAMETRIZATIONS, config):
    objective = parametrization.around(objective, config)
  return objective


def trains_all(objective: Objective, optimizer) -> bool:
  """Whether no parameters are frozen, by config.optimizer."""
  return objective.trainable(optimizer.trainable) == ALL


def shapes(config) -> dict:
  """The parameters of a new run, as shapes; nothing is computed."""
  return initial_shapes(of_config(config), config.data.image_size)


def shapes_without_parametrizations(config) -> dict:
  """As `shapes`, of the objective that parametrizations are around."""
  plain = config.objective.configured(config, models.configured(config.model))
  return initial_shapes(plain, config.data.image_size)


def initial_shapes(objective: Objective, image_size: Size) -> dict:
  """The initial parameters of an objective, as shapes; nothing is computed."""
  return jax.eval_shape(lambda: objective.init(jax.random.key(0), image_size))
