"""The parameters that --mode=evaluate scores: of the workdir's checkpoint, or config.init_from."""

import dataclasses
import pathlib

import jax
import numpy as np

from vit_jax import checkpoint, initial, models, optim, weights
from vit_jax.config import Config, ConfigError, RunError, to_dict
from vit_jax.data.evaluated import check_classes
from vit_jax.plan import Data

# What tells one model of this project from another, apart from its head.
FIELDS = (
  *("patch", "depth", "width", "mlp_dim", "heads", "stages", "stem_width", "axial", "pool"),
  *("positions", "position_place"),
)


@dataclasses.dataclass(frozen=True)
class Scored:
  """What was read.

  Attributes:
    config: the run's, its head as large as that of the parameters.
    params: NumPy arrays in the tree of the config's model.
    origin: where they come from, as the first entry of evaluation.json.
  """

  config: Config
  params: dict
  origin: dict[str, int | str]


def read(config: Config, data: Data, folder: pathlib.Path) -> Scored:
  """Reads the parameters, whose head has the classes of the evaluation sets.

  Raises:
    ConfigError: there are none, or they do not fit the config or the sets.
    CheckpointError: the checkpoint is damaged.
  """
  for source in data.evaluate.values():
    model = dataclasses.replace(config.model, num_classes=len(source.class_names))
    config = dataclasses.replace(config, model=model)
  if checkpoint.available(folder):
    return of_checkpoint(config, data, checkpoint.find(folder, config.evaluate_step))
  if not config.init_from:
    raise ConfigError(
      f"{folder} has no checkpoint to evaluate: name a --workdir that has, or weights with "
      "--config.init_from=PATH."
    )
  try:
    return of_weights(config, data, pathlib.Path(config.init_from).expanduser())
  except ConfigError:
    raise
  except (ValueError, OSError, RunError) as error:
    raise ConfigError(f"config.init_from={config.init_from}: {error}") from error


def of_checkpoint(config: Config, data: Data, source: pathlib.Path) -> Scored:
  """A checkpoint's parameters, or their moving average where the config has one.

  Raises:
    ConfigError: it does not fit the config, or knows other classes.
  """
  check_classes(config, data.evaluate, checkpoint.read_meta(source)["class_names"], str(source))
  ema = bool(config.optimizer.ema)
  shapes = initial.shapes(config)
  wanted = {"params": shapes}
  if ema:
    wanted["ema"] = optim.trained(shapes, config.optimizer.trainable)
  checkpoint.check_fits(source, wanted, to_dict(config), parts=tuple(wanted))
  params = checkpoint.load_params(source, ema=ema)
  return Scored(config, params, {"step": int(source.name)})


def of_weights(config: Config, data: Data, path: pathlib.Path) -> Scored:
  """Parameters from a file, a folder of Hugging Face's, or another run's checkpoint.

  Raises:
    ConfigError: they belong to another model, or know other classes.
    ValueError, OSError, RunError: they cannot be read.
  """
  read = weights.read(path)
  if "head" not in read.params:
    if data.evaluate:
      raise ValueError(
        "these weights have no head, so config.data.evaluate cannot be scored with them; "
        "config.few_shot and config.nearest can."
      )
    read = dataclasses.replace(read, params=with_empty_head(read.params, config))
  told = models.module_of(read.params)
  check_model(told, config)
  if data.evaluate:
    check_head(told.num_classes, config, data)
    if read.card and read.card.class_names:
      check_classes(config, data.evaluate, read.card.class_names, str(path))
  layer = getattr(told, "representation_layer", False)
  model = dataclasses.replace(
    config.model, num_classes=told.num_classes, representation_layer=layer
  )
  config = dataclasses.replace(config, model=model, new_head=False)
  params = initial.fitted(config, read.params)[0]
  return Scored(config, params, {"weights": str(path)})


def with_empty_head(params: dict, config: Config) -> dict:
  """The parameters with a head of zeros for one class, which features do not see."""
  one = dataclasses.replace(config, model=dataclasses.replace(config.model, num_classes=1))
  head = jax.tree.map(lambda x: np.zeros(x.shape, np.float32), initial.shapes(one)["head"])
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
      f"{'; '.join(differing)}; name their model (config.model.name) and what it differs in."
    )


def check_head(classes: int, config: Config, data: Data):
  """The head of weights has as many classes as the evaluation sets.

  Raises:
    ValueError: it has another number.
  """
  name, source = next(iter(data.evaluate.items()))
  if classes != len(source.class_names):
    raise ValueError(
      f"the head of these weights has {classes} classes, but config.data.evaluate.{name} "
      f"({config.data.evaluate[name].source}) has {len(source.class_names)}; fine-tune the weights "
      "on its classes first, or evaluate them with config.few_shot or config.nearest."
    )


def put(params: dict, abstract: dict) -> dict:
  """The parameters on the devices; every process puts its own share of each array there."""

  def place(array, wanted):
    return jax.make_array_from_callback(array.shape, wanted.sharding, lambda index: array[index])

  return jax.tree.map(place, params, abstract)
