"""The parameters that --mode=evaluate scores: of the workdir's checkpoint, or config.init_from."""

import dataclasses
import pathlib

import jax

from vit_jax import models, weights
from vit_jax.config import Config, ConfigError, RunError
from vit_jax.config.reading import expanded
from vit_jax.data import classes
from vit_jax.data.apart import Use
from vit_jax.devices import mesh as meshes
from vit_jax.evaluation import effective_settings
from vit_jax.inference import init_from, loading
from vit_jax.models.stacking import stack_blocks
from vit_jax.storage import checkpoint


@dataclasses.dataclass(frozen=True)
class Scored:
  """What was read.

  Attributes:
    config: the run's, with what the weights have a say in taken from them (`taken.settings`).
    model: Flax module of the parameters.
    params: NumPy arrays in the module's tree; the head's outputs in the order of the sets' classes.
    side: of the images that they were trained on, pixels; 0 where it is not known.
    resized: what had to be resized for config.data.image_size, in words; "" where nothing had.
    prepared: how images are prepared, in words.
    classes: what was found of the head's classes, in words; "" where no set is scored with it.
    origin: where they come from, as the first entry of evaluation.json.
  """

  config: Config
  model: models.ViT | models.ResNet
  params: dict
  side: int
  resized: str
  prepared: str
  classes: str
  origin: dict[str, int | str]


def read(
  config: Config, scored: Use | None, folder: pathlib.Path, given: frozenset[str] = frozenset()
) -> Scored:
  """Reads the parameters, whose head has the classes of the evaluation sets.

  Args:
    config: the settings.
    scored: a set that the head is scored on; None: there is none.
    folder: the workdir.
    given: the settings that the command line names, such as "data.image_size".

  Raises:
    ConfigError: there are none, or they do not fit the settings or the sets.
    CheckpointError: the checkpoint is damaged.
  """
  if checkpoint.available(folder):
    path = checkpoint.find(folder, config.evaluate_step)
    name, origin, reading = str(path), {"step": int(path.name)}, weights.of_checkpoint
  elif config.init_from:
    path = expanded(config.init_from)
    name, origin = f"config.init_from={config.init_from}", {"weights": str(path)}
    reading = lambda path, ema: weights.read(path, ema=ema)
  else:
    raise ConfigError(
      f"{folder} has no checkpoint to evaluate: name a --workdir that has, or weights with "
      "--config.init_from=PATH."
    )
  try:
    found = reading(path, None if config.evaluate_average else False)
    return Scored(*fitted(config, scored, found, given), origin)
  except (ValueError, OSError, RunError) as error:
    raise ConfigError(f"{name}: {error}") from error


def fitted(
  config: Config, scored: Use | None, read: weights.Weights, given: frozenset[str]
) -> tuple:
  """The attributes of `Scored` but for the last.

  Raises:
    ValueError: they belong to another model or know other classes, or have no head where sets are
      scored.
  """
  if "head" not in read.params and scored:
    raise ValueError(
      "these weights have no head, so config.data.evaluate cannot be scored with them; "
      "config.few_shot and config.nearest can."
    )
  read = dataclasses.replace(read, params=init_from.with_head(read.params))
  settings = config.model
  told = weights.module(read, activation=settings.activation, norm_epsilon=settings.norm_epsilon)
  config = effective_settings.settings(config, read, told, given)
  order = head_order(config.class_names, scored, read, told.num_classes)
  side = config.data.image_size
  params, rows = loading.at_size(told, read.params, side, order.outputs)
  model = effective_settings.computing(told, config.model)
  params = stack_blocks(params) if getattr(model, "scan", False) else params
  resized = ", ".join(row.detail for row in rows if row.what == "resized")
  prepared = effective_settings.preparation_in_words(
    config, known="data.evaluate_resize" in given or read.card
  )
  return config, model, params, loading.prepared(read).image_size, resized, prepared, order.said


def head_order(
  class_names: str, scored: Use | None, read: weights.Weights, outputs: int
) -> classes.Order:
  """How the head's outputs become the classes of the evaluation sets, which all have the same.

  Raises:
    ValueError: it is of other classes, or nothing tells which they are.
  """
  if not scored:
    return classes.Order(None, "")
  source, place = scored.source, f"{scored.key} ({scored.dataset.source})"
  if outputs != len(source.class_names):
    raise ValueError(
      f"the head of these weights has {outputs} classes, but {place} has "
      f"{len(source.class_names)}; fine-tune the weights on its classes first, or evaluate them "
      "with config.few_shot or config.nearest."
    )
  advice = (
    "Say in which order the head has the classes with --config.class_names=FILE (a name a line), "
    "or =data for the order of the data"
  )
  try:
    order = classes.of_head(class_names, read.class_names(), source.class_names)
  except classes.OtherClasses as error:
    raise ValueError(
      f"the head is of other classes than {place}: {error}. If they are the same under other "
      f"names: {advice[0].lower()}{advice[1:]}; else fine-tune the weights on its classes first."
    ) from error
  if not order.known:
    raise ValueError(
      f"nothing names the {outputs} classes of these weights, so their order may not be that of "
      f"{place}, which begins with {', '.join(map(repr, source.class_names[:3]))}. {advice}."
    )
  return order


def put(params: dict, mesh: jax.sharding.Mesh) -> dict:
  """The parameters on the devices; every process puts its own share of each array there."""

  def place(array, sharding):
    return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])

  return jax.tree.map(place, params, meshes.state_shardings(mesh, params))
