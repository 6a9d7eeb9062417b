"""The model that --mode=evaluate scores: the workdir's checkpoint, or config.init_from.

Model, loss and preparation of images come from the weights. The command line overrides them. A
recipe for evaluation alone (without a length of training), such as that of a published protocol,
overrides the preparation if it names an image size; a model that it names must be the one of the
weights.
"""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from vit_jax import config as cfg
from vit_jax import models, weights
from vit_jax.config import Config, ConfigError, RunError, Size, scaled
from vit_jax.config.fields import is_auto
from vit_jax.config.model import ARCHITECTURE, CONFIG_ONLY_FIELDS, FIXED_POSITIONS, USUAL
from vit_jax.config.recorded import from_record
from vit_jax.config.resolve import Facts, derived, left_to_rule, resolve, value_of, with_value
from vit_jax.data import classes, crops
from vit_jax.data.datasets import NamedDataset
from vit_jax.evaluation.evaluations import Evaluations
from vit_jax.inference.model import LoadedModel, of_weights
from vit_jax.learning.objective import OBJECTIVE_PARAMS
from vit_jax.models import family
from vit_jax.models.stacking import stack_blocks
from vit_jax.process.text import listed
from vit_jax.storage import checkpoint, files
from vit_jax.storage.base import raised_as
from vit_jax.storage.paths import Path, path_of

RESIZE = "data.evaluate_resize"
# The preparation of images and the resizing of positions, which a card contains.
PREPARATION = (RESIZE, "data.evaluate_squeeze", "data.resampling", "position_resizing")
OF_RUN = ("model.compute_dtype", "model.scan")  # taken from the settings of the run
NAME_THEM = (
  "ay in which order the head has the classes with --config.class_names=FILE (a name a line), or "
  "=data for the order of data with as many classes"
)


@dataclasses.dataclass(frozen=True)
class Scored:
  """A model to evaluate, with its settings.

  Attributes:
    settings: the config, with the model, loss and data of the evaluation.
    model: Flax module of the parameters.
    params: NumPy arrays in the module's tree, and those of the training objective, if any.
    size: of the images that they were trained on, pixels; 0: unknown.
    resized: which parameters were resized for config.data.image_size, in words; "": none.
    resizing_known: whether the weights, the recipe or the user specify how images are resized.
    head: the names of the head's classes, and where they come from; no names: no set uses them.
    origin: where the parameters come from; the first entry of evaluation.json.
  """

  settings: Config
  model: models.Network
  params: dict
  size: Size
  resized: str
  resizing_known: bool
  head: classes.HeadNames
  origin: dict[str, int | str]


def place_of(config: Config, folder: Path, named: frozenset[str]) -> str:
  """Where the parameters to score are: the workdir if it has checkpoints, else config.init_from.

  A recipe for evaluation alone that has an `init_from` asks to score these weights; the recipe of
  a training says what the run of `folder` started from.

  Args:
    config: the settings; of their model and data only what the user or the recipe gave.
    folder: the workdir.
    named: the settings that the command line names.

  Raises:
    ConfigError: the checkpoints of `folder` would be scored in place of the weights in `init_from`.
  """
  if not checkpoint.available(folder):
    return config.init_from
  _, meta = checkpoint.described(folder, config.evaluate_step)
  expected = None
  if alone(config):
    expected = str(folder)
  elif "init_from" in named and meta:  # without it, reading the checkpoint says what is damaged
    expected = meta["config"]["init_from"]
  given = config.init_from
  if given and expected is not None and given != expected and not files.same(given, expected):
    advice = ", or leave config.init_from out" if "init_from" in named else ""
    raise ConfigError(
      f"this workdir has checkpoints, which would be scored and not config.init_from={given}; "
      f"give those weights another --workdir{advice}."
    )
  return str(folder)


def read_evaluated(
  config: Config,
  evaluations: Evaluations,
  folder: Path,
  named: frozenset[str],
  facts: Facts,
  *,
  average: bool = True,
) -> Scored:
  """Reads the parameters, and finds out which classes they have.

  Args:
    config: the settings.
    evaluations: what they are scored on.
    folder: the workdir.
    named: the settings that the command line names, such as "data.image_size".
    facts: what is known of the devices.
    average: as in `weights.read`.

  Raises:
    ConfigError: there are no parameters, or they do not fit the settings or the sets.
    CheckpointError: the checkpoint is damaged.
  """
  of_run = bool(checkpoint.available(folder))
  if of_run:
    path, loaded = weights.of_run(folder, config.evaluate_step, average)
    name = str(path)
    origin = {"step": int(path.name)}
  elif config.init_from:
    path = path_of(config.init_from)
    name = f"config.init_from={config.init_from}"
    origin = {"weights": str(path)}
  else:
    raise ConfigError(
      f"{folder} has no checkpoint to evaluate: name a --workdir that has one, or give weights "
      "with --config.init_from=PATH."
    )
  with raised_as(ConfigError, lambda error: f"{name}: {error}", ValueError, OSError, RunError):
    if of_run:
      config = without_names_of_the_start(config, loaded)
    else:
      loaded = weights.read(path, step=config.evaluate_step, average=average)
    model = of_weights(loaded, config.model, of_command_line(config.model, named))
    origin["average"] = model.card.average
    return fitted(model, config, named, facts, evaluations, origin)


def of_command_line(model: cfg.Model, named: frozenset[str]) -> cfg.Model:
  """The settings of a model that the command line names, as for `read_evaluated`; else AUTO."""
  given = {key: getattr(model, key) for key in CONFIG_ONLY_FIELDS if f"model.{key}" in named}
  return cfg.Model(**given)


def without_names_of_the_start(config: Config, loaded: weights.Weights) -> Config:
  """The settings without the run's own `class_names`, which named the head of `init_from`.

  The head of the checkpoint has the classes of the training data, in their order.
  """
  if loaded.class_names() and config.class_names == loaded.settings["class_names"]:
    return with_value(config, "class_names", "")
  return config


def fitted(
  model: LoadedModel,
  config: Config,
  named: frozenset[str],
  facts: Facts,
  evaluations: Evaluations,
  origin: dict[str, int | str],
) -> Scored:
  """The model, prepared for the evaluation; arguments as for `read_evaluated`.

  Raises:
    ValueError: it is not the model that was asked for, it has other classes, or it has no head of
      classes and a set needs one.
  """
  heads = evaluations.heads()
  head = classes.HeadNames(())
  if heads and not model.classifies:
    raise ValueError(
      f"these weights {model.card.no_classes()}, so {heads[0].key} cannot be scored with them; "
      "evaluate their features (docs/evaluation.md), or fine-tune them first."
    )
  settings, resizing_known = settings_of(config, named, facts, model)
  if heads:
    head = head_names(config.class_names, heads, model)
  card = dataclasses.replace(model.card, position_resizing=settings.position_resizing)
  sized = dataclasses.replace(model, card=card).at_size(settings.data.image_size)
  module = computing(sized.module, settings.model)
  family.check_attention(module, settings.data.image_size, facts["device"](settings))
  params = sized.params
  if getattr(module, "scan", False):
    params = stack_blocks(params)
  if OBJECTIVE_PARAMS in model.read.params:
    params = params | {OBJECTIVE_PARAMS: model.read.params[OBJECTIVE_PARAMS]}
  return Scored(
    settings=settings,
    model=module,
    params=params,
    size=model.card.image_size,
    resized=", ".join(row.detail for row in sized.rows if row.what == "resized"),
    resizing_known=resizing_known,
    head=head,
    origin=origin,
  )


def head_names(
  class_names: str, heads: Sequence[NamedDataset], model: LoadedModel
) -> classes.HeadNames:
  """The names of the head's classes; the sets `heads` may have no other classes.

  Raises:
    ValueError: the head lacks a class of a set, or the classes of the head are unknown.
  """
  sets = [named.source.class_names for named in heads]
  outputs = model.module.num_classes
  head = classes.of_outputs(class_names, model.read.class_names(), outputs, sets)
  if not head.names:
    raise ValueError(
      f"nothing names the {outputs} classes of these weights, so they may not be those of "
      f"{heads[0]}, the {len(sets[0])} classes {listed(sets[0], 3)}. S{NAME_THEM}."
    )
  for named in heads:
    try:
      classes.matched(named, head.names, "the head")
    except ConfigError as error:
      raise ValueError(
        f"{error} If they are the same under other names: s{NAME_THEM}; else fine-tune the weights "
        "on its classes first, or evaluate their features (docs/evaluation.md)."
      ) from error
  return head


def settings_of(
  config: Config, named: frozenset[str], facts: Facts, model: LoadedModel
) -> tuple[Config, bool]:
  """The config with the model, the loss and the preparation of images; `Scored.resizing_known`.

  Raises:
    ValueError: a named setting contradicts the weights, or no image size is known.
    ConfigError: the image size does not suit the model.
  """
  check_named(config, named, model)
  config = left_to_weights(as_trained(config, named, model), named, model)
  given = config.data.evaluate_resize != cfg.AUTO and (RESIZE in named or alone(config))
  if config.data.image_size == cfg.AUTO and not model.card.image_size:
    raise ValueError(
      "the weights do not tell the size of their images; give a size, such as "
      "--config.data.image_size=224."
    )
  of_weights = {
    "card": lambda config: model.card,
    "architecture": lambda config: model.card.model,
    "representation": lambda config: model.card.representation,
    "fields": lambda config: models.fields_of_module(model.module),
    "attention": lambda config: attention_on(config, facts["device"](config), model.module),
    "parts": lambda config: (1, ""),
  }
  config = resolve(config, {**facts, **of_weights})
  family.check_tiles(model.module, config.data.image_size, "these weights")
  crops.check_resampling(config.data)
  for name, spec in config.evaluate.items():
    spec.check(f"config.evaluate.{name}", config)
  known = model.read.card is not None and not model.read.card.guessed
  return config, given or known


def left_to_weights(config: Config, named: frozenset[str], model: LoadedModel) -> Config:
  """The settings, with AUTO for those that the weights decide; the command line always wins.

  A recipe for evaluation alone wins over the weights, except for the model. Without a card, the
  recipe of a training decides how images are prepared, in proportion to their size.

  Raises:
    ConfigError: as `within`.
  """
  left = {f"model.{key}" for key in ("name", *ARCHITECTURE)}
  if alone(config):
    config = within(config, named, model.module)
  elif model.read.card:
    left |= {*PREPARATION}
    if model.card.image_size:
      left.add("data.image_size")
  elif model.card.image_size and "data.image_size" not in named:
    config = in_proportion(config, named, model.card.image_size)
  for key in left - named:
    config = left_to_rule(config, key)
  return config


def in_proportion(config: Config, named: frozenset[str], size: Size) -> Config:
  """The settings for images of another size; the same fraction of an image is scored."""
  before = config.data.image_size
  resize = config.data.evaluate_resize
  if RESIZE not in named and resize != cfg.AUTO and before != cfg.AUTO:
    config = with_value(config, RESIZE, scaled(resize, size, before))
  return with_value(config, "data.image_size", size)


def anew(config: Config, named: frozenset[str]) -> Config:
  """The settings, with AUTO where rules decided for the devices and evaluations of a training.

  The accumulation stays, as its batches fit into memory, unless another batch size is named.
  """
  left = {key for key in derived(config) if key == "mesh.data" or key.startswith("evaluate.")}
  if "batch_size" in named and "accumulation" in derived(config):
    left.add("accumulation")
  for key in left - named:
    config = left_to_rule(config, key)
  return config


def attention_on(config: Config, device: jax.Device, module: models.Network) -> str:
  """How the module's attention is computed, in the type of the settings."""
  in_type = module.clone(dtype=jnp.dtype(config.model.compute_dtype))
  return family.attention_on(in_type, config.data.image_size, device)


def as_trained(config: Config, named: frozenset[str], model: LoadedModel) -> Config:
  """The settings with the head of the weights, and the loss and the type of their run.

  Settings that the command line names stay.
  """
  read = model.read
  known = {
    "model.num_classes": model.module.num_classes,
    "model.representation_layer": getattr(model.module, "representation_layer", False),
  }
  if read.settings is not None:
    run = from_record(read.settings, "model", "loss")
    keys = [*OF_RUN, *(f"loss.{field.name}" for field in dataclasses.fields(run.loss))]
    known |= {key: value_of(run, key) for key in keys}
    known["model.attention"] = cfg.AUTO  # the run may have used other devices
  elif read.card or config.loss.kind == cfg.AUTO:
    known["loss.kind"] = model.card.loss
  for key, value in known.items():
    if key not in named or value_of(config, key) == cfg.AUTO:
      config = with_value(config, key, value)
  return config


def within(config: Config, named: frozenset[str], module: models.Network) -> Config:
  """The config with the largest size that the model's patches tile, up to that of the recipe.

  Raises:
    ConfigError: the size is smaller than a patch.
  """
  size = config.data.image_size
  if isinstance(size, tuple) or size == cfg.AUTO or "data.image_size" in named:
    return config
  side = family.largest_side(module, size, "these weights")
  return with_value(config, "data.image_size", side)


def alone(config: Config) -> bool:
  """Whether the recipe is for evaluation alone, so that it overrides the weights."""
  if not is_auto(config.duration):
    return not config.duration.given()
  return not (config.data.mixed() or config.data.train.source)


def check_named(config: Config, named: frozenset[str], loaded: LoadedModel):
  """Checks that the weights belong to the model that the user named, if any.

  Raises:
    ValueError: a setting that the user named differs.
  """
  model = config.model
  module = loaded.module
  if model.name != cfg.AUTO and ("model.name" in named or alone(config)):
    loaded.check_is(dataclasses.replace(model, **unseen(loaded.card.model)))
  known = USUAL | {"representation_layer": False} | models.fields_of_module(module)
  for field, usual in known.items():
    wanted = getattr(model, field)
    there = getattr(module, field, usual)
    if f"model.{field}" in named and wanted not in (there, cfg.AUTO):
      raise ValueError(
        f"config.model.{field} is {there} in these weights, but {wanted} was asked for; leave "
        "this setting out."
      )


def unseen(model: cfg.Model) -> dict[str, str | float]:
  """The settings of a model that its parameters do not show, such as the activation."""
  shown = ("positions",)
  if model.positions in FIXED_POSITIONS:
    shown = ()
  return {key: getattr(model, key) for key in CONFIG_ONLY_FIELDS if key not in shown}


def computing(module, model) -> models.Network:
  """The module with the type, attention and scan of config.model."""
  options = dict(dtype=jnp.dtype(model.compute_dtype), attention=model.attention, scan=model.scan)
  known = {field.name for field in dataclasses.fields(module)}
  return module.clone(**{key: value for key, value in options.items() if key in known})
