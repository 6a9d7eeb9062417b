"""The parameters that --mode=evaluate scores: of the workdir's checkpoint, or config.init_from."""

import dataclasses
import pathlib

import jax

from vit_jax import checkpoint, initial, models, weights
from vit_jax.config import Config, ConfigError, RunError
from vit_jax.data.evaluated import check_classes
from vit_jax.plan import Data


@dataclasses.dataclass(frozen=True)
class Scored:
  """What was read.

  Attributes:
    config: the run's, its head as large as that of the parameters.
    params: NumPy arrays in the tree of the config's model.
    side: of the images that they were trained on, pixels; 0 where it is not known.
    resized: what had to be resized for config.data.image_size, in words; "" where nothing had.
    origin: where they come from, as the first entry of evaluation.json.
  """

  config: Config
  params: dict
  side: int
  resized: str
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
    path = checkpoint.find(folder, config.evaluate_step)
    given, origin, reading = str(path), {"step": int(path.name)}, weights.of_checkpoint
  elif config.init_from:
    path = pathlib.Path(config.init_from).expanduser()
    given, origin = f"config.init_from={config.init_from}", {"weights": str(path)}
    reading = lambda path, ema: weights.read(path, ema=ema)
  else:
    raise ConfigError(
      f"{folder} has no checkpoint to evaluate: name a --workdir that has, or weights with "
      "--config.init_from=PATH."
    )
  try:
    found = reading(path, None if config.evaluate_average else False)
  except (ValueError, OSError, RunError) as error:
    raise ConfigError(f"{given}: {error}") from error
  try:
    return Scored(*fitted(config, data, found, path), origin)
  except ConfigError:
    raise
  except (ValueError, OSError, RunError) as error:
    raise ConfigError(f"{given}: {error}") from error


def fitted(
  config: Config, data: Data, read: weights.Weights, path: pathlib.Path
) -> tuple[Config, dict, int, str]:
  """The first four attributes of `Scored`.

  Raises:
    ConfigError: they know other classes than the sets.
    ValueError: they belong to another model, or have no head where sets are scored.
  """
  if "head" not in read.params and data.evaluate:
    raise ValueError(
      "these weights have no head, so config.data.evaluate cannot be scored with them; "
      "config.few_shot and config.nearest can."
    )
  params = initial.with_head(read.params, config)
  told = models.module_of(params)
  side = (read.card or weights.told_by(params)).image_size
  initial.check_model(told, config)
  if data.evaluate:
    check_head(told.num_classes, config, data)
    if read.card and read.card.class_names:
      check_classes(config, data.evaluate, read.card.class_names, str(path))
  layer = getattr(told, "representation_layer", False)
  model = dataclasses.replace(
    config.model, num_classes=told.num_classes, representation_layer=layer
  )
  config = dataclasses.replace(config, model=model, new_head=False)
  params, rows = initial.fitted(config, params)
  return config, params, side, ", ".join(row.detail for row in rows if row.what == "resized")


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
