"""Relations between settings, checked before data or devices are touched."""

from vit_jax import models
from vit_jax.config import (
  Config,
  ConfigError,
  Data,
  Dataset,
  Duration,
  EarlyStopping,
  Model,
  Schedule,
)
from vit_jax.config.reading import expanded
from vit_jax.data import resizing
from vit_jax.evaluation import registry
from vit_jax.models import requirements
from vit_jax.process.text import shown
from vit_jax.training import patterns, unused

MOST_STAGES, MOST_UNITS = 6, 256  # of a ResNet; the paper's deepest has 4 stages, 66 units

NO_DATA = (
  "config.data.train.source is empty: the data of this recipe cannot be downloaded. Point it at "
  "your own with --config.data.train.source=folder:DIR (DIR/class/*.jpg), or with "
  "--config.data.train.source=tfds:NAME --config.data.train.split=train "
  "(--config.data.train.label_key=... where the labels are not called {label_key!r}), and give "
  "its number of classes with --config.model.num_classes=N. A recipe can also mix several sources "
  "by weight, with config.data.mix."
)


def check(config: Config, *, begun: bool = False):
  """Refuses settings that contradict one another.

  Args:
    config: the settings.
    begun: whether the run resumes; then settings without effect are allowed, because earlier
      releases began runs with them.

  Raises:
    ConfigError: names the key, the value and the nearest valid choice.
  """
  check_model(config.model, config.data.image_size)
  check_batch(config.batch_size, parts=config.accumulation)
  check_data(config.data, config.duration)
  check_schedule(config.schedule)
  patterns.check_decay_rules(config)
  patterns.check_trainable(config)
  check_early_stopping(config.early_stopping, config.evaluate_every, registry.names(config))
  check_weights(config)
  unused.check_mode(config, begun=begun)
  if not begun:
    unused.check(config)


def check_weights(config: Config):
  """Checks that there are weights where settings say what to take of them."""
  expanded(config.init_from)
  if config.new_head and not config.init_from:
    raise ConfigError(
      "config.new_head=True, the default of fine-tuning recipes, requires config.init_from, which "
      "is empty; give --config.init_from=PATH (ViT-B_16.npz, a Hugging Face folder, or the workdir "
      "of a run), or --config.new_head=False to train from scratch."
    )
  for key in ("class_names", "new_positions", "keep_representation"):
    value = getattr(config, key)
    if value and not config.init_from:
      raise ConfigError(
        f"config.{key}={value!r} requires config.init_from, which is empty; give "
        f"--config.init_from=PATH, or leave {key} out."
      )
  if config.keep_representation and not config.model.representation_layer:
    raise ConfigError(
      "config.keep_representation=True requires config.model.representation_layer=True, so that "
      "the model has that layer; set both, or neither."
    )


def check_model(model: Model, image_size: int):
  """Checks that the architecture can be built, and that its patches tile the images."""
  stages = [units for units in model.stages if type(units) is int and units > 0]
  if len(stages) != len(model.stages) or len(stages) > MOST_STAGES or sum(stages) > MOST_UNITS:
    raise ConfigError(
      f"config.model.stages={shown(model.stages)} must hold numbers of residual units, one for "
      f"each of at most {MOST_STAGES} stages and {MOST_UNITS} in all, such as (3, 4, 6, 3)."
    )
  try:
    module = models.configured(model)
  except ValueError as error:
    raise ConfigError(f"config.model.{error}") from error
  requirements.check_tiles(module, image_size, model.name)
  requirements.check_type(model.attention, model.compute_dtype)


def check_batch(batch_size: int, *, parts: int):
  """Checks that the batch can be divided into the parts of accumulation."""
  if batch_size % parts:
    below = batch_size - batch_size % parts
    raise ConfigError(
      f"config.batch_size={batch_size} is not divisible by "
      f"config.accumulation={parts}; nearest: "
      f"{', '.join(str(b) for b in (below, below + parts) if b)}."
    )


def check_evaluation(config: Config, *, begun: bool = False, given: frozenset[str] = frozenset()):
  """As `check`, for --mode=evaluate: training data and the length of training are not needed.

  Settings without effect are allowed in a run that has begun, unless the command line names them.
  The model is checked only in a recipe for evaluation alone, and only if the recipe names one. In
  all other cases the model comes from the run.
  """
  if config.model.name and not config.duration.given():
    check_model(config.model, config.data.image_size)
  check_batch(config.batch_size, parts=config.accumulation)
  resizing.check_sets(config.data.evaluate)
  unused.check_datasets(config, given if begun else None)
  unused.check_pairs(config, given if begun else None)


def check_data(data: Data, duration: Duration):
  """Checks that there is training data and a length of training, and that crops can be drawn."""
  check_mix(data)
  given = data.mixed() or data.train.source
  if not given and not duration.given():
    raise ConfigError(
      "config.data.train.source is empty and config.duration is 0, as in recipes for evaluation "
      "alone; add --mode=evaluate, or give both settings to train."
    )
  if not given:
    raise ConfigError(NO_DATA.format(label_key=data.train.label_key))
  if not duration.given():
    raise ConfigError("config.duration is 0; give it a length, such as --config.duration.epochs=7.")
  for key, low, high in (("crop_area", 1e-4, 1.0), ("crop_aspect", 0.01, 100.0)):
    pair = getattr(data, key)
    numbers = [x for x in pair if isinstance(x, (int, float)) and not isinstance(x, bool)]
    if len(pair) != 2 or len(numbers) != 2 or not low <= pair[0] <= pair[1] <= high:
      raise ConfigError(
        f"config.data.{key}={shown(pair)} is not (least, largest) with "
        f"{low:g} <= least <= largest <= {high:g}; the default is "
        f"{getattr(type(data)(), key)}."
      )
  if not data.image_size:
    raise ConfigError(
      "config.data.image_size=0 means the size that the weights are for, and is allowed only with "
      "--mode=evaluate; give a size, such as --config.data.image_size=224."
    )
  resizing.check(data)
  resizing.check_sets(data.evaluate)
  check_crops(data)


def check_crops(data: Data):
  """Checks the settings that resize training images and cut crops out of them."""
  resize, ratio, usual = data.train_resize, data.train_resize_ratio, Data()
  if resize and ratio:
    raise ConfigError(
      f"config.data.train_resize={resize} and config.data.train_resize_ratio={ratio:g} say the "
      "same in two ways; give one of them, and make the other 0."
    )
  if 0 != resize < data.image_size:
    raise ConfigError(
      f"config.data.train_resize={resize} is smaller than "
      f"config.data.image_size={data.image_size}, the size of the crop; make train_resize 0 or at "
      f"least {data.image_size}."
    )
  kind = f"train_resize={resize}" if resize else f"train_resize_ratio={ratio:g}"
  for key in ("crop_area", "crop_aspect"):
    if data.resized_side() and getattr(data, key) != getattr(usual, key):
      raise ConfigError(
        f"config.data.{key}={getattr(data, key)} has no effect with config.data.{kind}, which "
        f"resizes the whole image; leave it out, or give --config.data.{kind.split('=')[0]}=0."
      )
  least = data.resized_side() or data.image_size
  if data.cache and data.cache_side < least:
    cause = kind if data.resized_side() else f"image_size={least}"
    raise ConfigError(
      f"config.data.cache_side={data.cache_side} is smaller than the {least} pixels of "
      f"config.data.{cause}, so every crop would be enlarged; make it at least {least}, or "
      "config.data.cache empty."
    )


def check_mix(data: Data):
  """Checks that a mix is given in place of config.data.train, not beside it."""
  usual, key = Dataset(), "config.data.train"
  changed = [name for name, value in vars(data.train).items() if value != getattr(usual, name)]
  if data.mixed() and changed:
    given = ", ".join(f"{key}.{name}={shown(getattr(data.train, name))}" for name in changed)
    flags = " ".join(f"--{key}.{name}={getattr(usual, name)}" for name in changed)
    raise ConfigError(
      f"{given} cannot be given beside config.data.mix ({', '.join(data.mixed())}); leave it out "
      f"with {flags}, and give each source of the mix its own, or leave the mix out."
    )


def check_schedule(schedule: Schedule):
  """Checks that `drops` are ascending fractions of the run, given only with decay="steps"."""
  drops, staircase = schedule.drops, schedule.decay == "steps"
  numbers = [x for x in drops if isinstance(x, (int, float)) and 0 < x < 1]
  if len(numbers) < len(drops) or list(drops) != sorted(set(numbers)):
    raise ConfigError(
      f"config.schedule.drops={shown(drops)} must be ascending fractions of the run between 0 and "
      "1, such as (0.3, 0.6, 0.9)."
    )
  if staircase != bool(drops):
    raise ConfigError(
      f"config.schedule.drops={drops} does not go with config.schedule.decay={schedule.decay!r}; "
      "decay=steps requires drops such as (0.3, 0.6, 0.9); every other decay requires drops=()."
    )


def check_early_stopping(settings: EarlyStopping, evaluate_every: Duration, figures: list[str]):
  """Checks that `figures`, which the evaluations give, hold the one that early stopping watches."""
  metric, patience = settings.metric, settings.patience
  if patience and not metric:
    raise ConfigError(
      f"config.early_stopping.patience={patience} requires a metric to watch; name one, such as "
      "--config.early_stopping.metric=val/top1, or make patience 0."
    )
  if metric and metric not in figures:
    known = ", ".join(figures) or "none: no set of config.data.evaluate has a source"
    raise ConfigError(
      f"config.early_stopping.metric={metric!r} is not a metric that this run's evaluation sets "
      f"are sure to give; they give {known}."
    )
  if patience and not evaluate_every.given():
    raise ConfigError(
      f"config.early_stopping.patience={patience} counts evaluations, but config.evaluate_every is "
      "0; give it, such as --config.evaluate_every.epochs=1."
    )
