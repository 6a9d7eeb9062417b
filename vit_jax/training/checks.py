"""Relations between settings, checked before data or devices are touched."""

import contextlib
import re
from collections.abc import Callable, Collection, Iterator, Mapping

from vit_jax.config import (
  AUTO,
  Config,
  ConfigError,
  Data,
  Dataset,
  EarlyStopping,
  Model,
  Optimizer,
  Schedule,
  Size,
  covers,
  resolve,
  sides,
  similar,
)
from vit_jax.config.data import AREAS, check_range
from vit_jax.config.fields import switched_on
from vit_jax.config.resolve import GIVEN, left, with_value
from vit_jax.data import crops, images, sources
from vit_jax.devices import mesh
from vit_jax.evaluation import catalogue, evaluated_model
from vit_jax.learning import objective as objectives
from vit_jax.learning import optim
from vit_jax.models import family
from vit_jax.models.stacking import STACKED
from vit_jax.process.text import is_regex, shown
from vit_jax.registry import EVALUATIONS, PARAMETRIZATIONS, TRAINING_VIEWS
from vit_jax.storage.tree import flatten
from vit_jax.training.facts import LATER, module_of

MAX_FACTOR = 1e4  # for weight decay, in a decay rule

NO_DATA = (
  "config.data.train.source is empty: the data of this recipe cannot be downloaded; name your own "
  "with --config.data.train.source=SOURCE (or several by config.data.mix), one of {forms}, and "
  "take the number of its classes with --config.model.num_classes=auto."
)


def check_before_data(asked: Config, config: Config):
  """As `check`, before the data is opened; settings that depend on the data are checked later.

  Raises:
    ConfigError: also if there is no training data, or no length of training.
  """
  check_given(config)
  if LATER.issuperset(left(config)):
    check(asked, config)


def check(asked: Config, config: Config):
  """Refuses settings that contradict one another, or have no effect.

  Args:
    asked: the settings as they were given.
    config: the same, with the values that rules decide.

  Raises:
    ConfigError: names the key, the value and the nearest valid choice.
  """
  check_model(config.model, config.data.image_size)
  config.objective.check(config, module_of(config.model))
  check_parametrizations(config)
  config.optimizer.check(config)
  check_batch(config.batch_size, parts=config.parts)
  check_repeats(config.batch_size, config.data.repeats)
  crops.check_resampling(config.data)
  check_views(config)
  check_channels(config)
  for view in switched_on(TRAINING_VIEWS, config):
    view.check(config)
  check_schedule(config.schedule)
  check_evaluations(config)
  check_heads(config)
  check_split(config)
  check_patterns(config)
  check_early_stopping(config.early_stopping, catalogue.names(config))
  check_mode(config)
  check_weights(config)
  resolve.check_unused(asked, config)


def check_model(model: Model, image_size: Size):
  """Checks that the architecture can be built, and that its patches tile the images."""
  family.check_tiles(module_of(model), image_size, model.name)
  family.check_type(model.attention, model.compute_dtype)


def check_parametrizations(config: Config):
  """Checks the settings of parametrizations, such as LoRA, against those of the run."""
  for parametrization in switched_on(PARAMETRIZATIONS, config):
    shapes = objectives.shapes_without_parametrizations(with_one_class(config))
    parametrization.check(config, {name: x.shape for name, x in flatten(shapes).items()})


def check_split(config: Config):
  """Checks that heads and MLPs can be split over the devices of config.mesh.model."""
  if config.mesh.model > 1:
    rules = (*config.objective.sharding, *module_of(config.model).sharding)
    mesh.check_split(shapes_of(config), rules, config.mesh.model)


def check_views(config: Config):
  """Checks the crops of the objective's views, whose settings may differ from config.data."""
  for name, view in config.objective.views(config.data).items():
    with blaming_view(config, name, view.data):
      check_crops(view.data)


def check_channels(config: Config):
  """Refuses steps for RGB images where the model takes others."""
  channels = config.model.channels
  for view in config.objective.views(config.data).values():
    if channels != images.RGB and view.data.augment:
      kinds = ", ".join(step.kind for step in view.data.augment)
      raise ConfigError(
        f"config.data.augment ({kinds}) changes RGB images, and config.model.channels={channels}; "
        "leave one out."
      )


@contextlib.contextmanager
def blaming_view(config: Config, name: str, data: Data) -> Iterator[None]:
  """Names the view in an error, if its settings differ from config.data."""
  try:
    yield
  except ConfigError as error:
    if data == config.data:
      raise
    raise ConfigError(
      f"the images {name!r} of config.objective.kind={config.objective.kind}: {error}"
    ) from error


def check_batch(batch_size: int, *, parts: int):
  """Checks that the batch can be divided into the microbatches of config.accumulation."""
  if batch_size % parts:
    raise ConfigError(
      f"config.batch_size={batch_size} is not divisible by "
      f"config.accumulation={parts}; nearest: {_nearest_multiples(batch_size, parts)}."
    )


def check_repeats(batch_size: int, repeats: int):
  """Checks that a batch holds each of its images the same number of times."""
  if batch_size % repeats:
    raise ConfigError(
      f"config.batch_size={batch_size} is not divisible by config.data.repeats={repeats}; nearest: "
      f"{_nearest_multiples(batch_size, repeats)}."
    )


def _nearest_multiples(number: int, of: int) -> str:
  """The multiples of `of` just below and above `number`, without 0."""
  below = number - number % of
  return ", ".join(str(multiple) for multiple in (below, below + of) if multiple)


def check_evaluation(config: Config):
  """As `check`, for --mode=evaluate: training data and the length of training are not needed.

  The model is checked only in a recipe for evaluation alone, and only if the recipe names one. In
  all other cases the model comes from the run.
  """
  if config.model.name != AUTO and evaluated_model.alone(config):
    size = config.data.image_size
    if size == AUTO:
      size = 0
    check_model(config.model, size)
  if config.batch_size != AUTO:
    check_batch(config.batch_size, parts=config.parts)
  check_evaluations(config)


def check_mode(config: Config):
  """Refuses settings of --mode=evaluate in a training run."""
  if config.evaluate_step:
    raise ConfigError(
      f"config.evaluate_step={config.evaluate_step} has no effect in training; add "
      "--mode=evaluate, or leave it out."
    )


def check_weights(config: Config):
  """Refuses a recipe that says where its weights come from, if none are given."""
  origin = dict(config.origins).get("init_from", "")
  if origin and not config.init_from:
    which = "" if origin == GIVEN else f" ({origin})"
    raise ConfigError(
      f"config.init_from is empty, and this recipe needs weights{which}; give "
      "--config.init_from=PATH."
    )


def check_used(config: Config, given: Collection[str]):
  """Refuses settings of the command line that no kind of evaluation uses."""
  specs = catalogue.asked_for(config).values()
  if "class_names" in given and not any(spec.scores_head for spec in specs):
    raise ConfigError(
      "config.class_names has no effect: no set of config.evaluate scores the head; leave it out."
    )
  if "data.evaluate_resize" in given and all(spec.resizes_itself for spec in specs):
    raise ConfigError(
      "config.data.evaluate_resize has no effect: every set of config.evaluate is resized as its "
      "kind says; leave it out."
    )


def check_evaluations(config: Config):
  """Checks the settings of each evaluation, also against those of the run."""
  for name, spec in config.evaluate.items():
    if name in catalogue.OF_TRAINING:
      raise ConfigError(
        f"config.evaluate.{name}: {name}/... are metrics of training; call it otherwise."
      )
    spec.check(f"config.evaluate.{name}", config)


def check_heads(config: Config):
  """Refuses evaluations of a head that the objective does not train."""
  if config.objective.trains_head:
    return
  for name, spec in catalogue.asked_for(config).items():
    if spec.scores_head:
      others = [kind for kind, each in EVALUATIONS.items() if not each.scores_head]
      raise ConfigError(
        f"config.evaluate.{name} scores the head, which config.objective.kind="
        f"{config.objective.kind!r} does not train; leave its source empty, or give it a kind that "
        f"needs no head: {', '.join(others)}."
      )


def check_given(config: Config):
  """Checks that there is training data and a length of training."""
  data = config.data
  duration = config.duration
  check_mix(data)
  source = data.mixed() or data.train.source
  if not source and not duration.given():
    raise ConfigError(
      "config.data.train.source is empty and config.duration is 0, as in recipes for evaluation "
      "alone; add --mode=evaluate, or give both settings to train."
    )
  if not source:
    raise ConfigError(NO_DATA.format(forms=sources.forms()))
  if not duration.given():
    raise ConfigError("config.duration is 0; give it a length, such as --config.duration.epochs=7.")


def check_crops(data: Data):
  """Checks the settings that resize training images and cut crops out of them."""
  check_range("config.data.crop_area", data.crop_area, *AREAS)
  check_range("config.data.crop_aspect", data.crop_aspect, 0.01, 100.0)
  resize = data.train_resize
  if resize and not covers(resize, data.image_size):
    raise ConfigError(
      f"config.data.train_resize={resize} is smaller than "
      f"config.data.image_size={data.image_size}, the size of the crop; make train_resize 0 or at "
      f"least {data.image_size}."
    )
  least = min(sides(data.image_size))
  if data.train_pad >= least:
    raise ConfigError(
      f"config.data.train_pad={data.train_pad} is not smaller than config.data.image_size="
      f"{data.image_size}, so there is nothing to mirror; the most is {least - 1}."
    )


def check_mix(data: Data):
  """Checks that a mix is given in place of config.data.train, not beside it."""
  usual = Dataset()
  key = "config.data.train"
  changed = [name for name, value in vars(data.train).items() if value != getattr(usual, name)]
  if data.mixed() and changed:
    given = ", ".join(f"{key}.{name}={shown(getattr(data.train, name))}" for name in changed)
    flags = " ".join(f"--{key}.{name}={getattr(usual, name)}" for name in changed)
    raise ConfigError(
      f"{given} cannot be given beside config.data.mix ({', '.join(data.mixed())}); leave it out "
      f"with {flags}, and give each source of the mix its own, or leave the mix out."
    )


def check_schedule(schedule: Schedule):
  """Checks that `drops` are ascending fractions of the run, and given with decay="steps"."""
  drops = schedule.drops
  numbers = [x for x in drops if isinstance(x, (int, float)) and 0 < x < 1]
  if len(numbers) < len(drops) or list(drops) != sorted(set(numbers)):
    raise ConfigError(
      f"config.schedule.drops={shown(drops)} must be ascending fractions of the run between 0 and "
      "1, such as (0.3, 0.6, 0.9)."
    )
  if schedule.decay == "steps" and not drops:
    raise ConfigError(
      "config.schedule.decay='steps' requires drops, and config.schedule.drops is empty; give it, "
      "such as --config.schedule.drops='(0.3, 0.6, 0.9)'."
    )


def check_early_stopping(settings: EarlyStopping, metrics: list[str]):
  """Checks that the metric of early stopping is one of `metrics`, which the evaluations give."""
  metric = settings.metric
  if metric and metric not in metrics:
    known = ", ".join(metrics) or "none: no set of config.evaluate has a source"
    raise ConfigError(
      f"config.early_stopping.metric={metric!r} is not a metric that this run's evaluation sets "
      f"give; they give {known}."
    )


def shapes_of(config: Config) -> dict[str, tuple[int, ...]]:
  """The shapes of a new run's parameters; the head has one class, as the number may be unknown."""
  shapes = objectives.shapes(with_one_class(config))
  return {name: x.shape for name, x in flatten(shapes).items()}


def with_one_class(config: Config) -> Config:
  """The settings, with a head of one class if the number of classes is not known yet."""
  return with_value(config, "model", config.model.with_classes(1))


def check_patterns(config: Config):
  """Checks the settings that are regexes of parameter names, against the parameters of the run."""
  settings = config.optimizer
  usual = Optimizer()
  for rule in settings.decay_rules:
    check_decay_rule(rule)
  if not is_regex(settings.trainable):
    raise ConfigError(f"config.optimizer.trainable={shown(settings.trainable)} is not a regex.")
  pattern = settings.trainable
  rules = settings.decay_rules
  with_blocks = settings.needs_blocks or settings.layer_decay < 1
  if (pattern, rules) == (usual.trainable, usual.decay_rules) and not with_blocks:
    return
  shapes = shapes_of(config)
  if with_blocks and not any(STACKED in name for name in shapes):
    cause = "layer_decay"
    if settings.needs_blocks:
      cause = f"kind={settings.kind!r}"
    raise ConfigError(
      f"config.optimizer.{cause} is for models with blocks of a Transformer, and "
      f"{config.model.name} has none; leave it out."
    )

  def trained(name):
    return bool(re.fullmatch(pattern, name))

  def decay(name):
    return optim.decay_factor(name, rules)

  check_blocks(f"config.optimizer.trainable={shown(pattern)}", trained, shapes)
  check_blocks(f"config.optimizer.decay_rules={shown(rules)}", decay, shapes)
  if not any(map(trained, shapes)):
    raise ConfigError(
      f"config.optimizer.trainable={shown(pattern)} matches no parameter of {config.model.name}; "
      f"nearest: {similar(pattern, shapes)}."
    )


def check_decay_rule(rule):
  """Checks that a rule of weight decay is (regex, factor)."""
  pattern = factor = None
  if isinstance(rule, tuple) and len(rule) == 2:
    pattern, factor = rule
  number = isinstance(factor, (int, float)) and 0.0 <= factor <= MAX_FACTOR
  if not (is_regex(pattern) and number):
    raise ConfigError(
      f"config.optimizer.decay_rules holds {shown(rule)}; each rule is (regex, factor), such as "
      f"('.*/kernel', 1.0), with a factor in 0 to {MAX_FACTOR:g}."
    )


def check_blocks(setting: str, value: Callable, shapes: Mapping[str, tuple[int, ...]]):
  """Checks that a setting is the same for an array of stacked blocks as for each of its blocks.

  With config.model.scan=True only the array has a name, so a setting for the name of one block
  would have no effect.

  Args:
    setting: the setting and its value, for the message.
    value: the setting's value for a parameter, by its name.
    shapes: the shapes of the parameters.

  Raises:
    ConfigError: it differs.
  """
  for name, shape in shapes.items():
    if f"{STACKED}/" not in name:
      continue
    for block in range(shape[0]):
      alone = name.replace(f"{STACKED}/", f"{STACKED}_{block}/")
      if value(alone) != value(name):
        raise ConfigError(
          f"{setting} names single blocks, such as {alone}, but config.model.scan=True stacks all "
          f"blocks in one array ({name}); use --config.model.scan=False, or write {STACKED}.* for "
          "all blocks."
        )
