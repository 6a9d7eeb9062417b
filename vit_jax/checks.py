"""Relations between settings, checked before data or devices are touched."""

import itertools
import re

from vit_jax import models
from vit_jax.config import Config, ConfigError

NO_DATA = (
  "config.data.train.source is empty: the data of this recipe cannot be downloaded. Point it at "
  "your own with --config.data.train.source=folder:DIR (DIR/class/*.jpg), or with "
  "--config.data.train.source=tfds:NAME --config.data.train.split=train "
  "(--config.data.train.label_key=... where the labels are not called {label_key!r}), and give "
  "its number of classes with --config.model.num_classes=N."
)


def check(config: Config):
  """Refuses settings that contradict one another.

  Raises:
    ConfigError: names the key, the value and the nearest valid choice.
  """
  check_model(config)
  check_batch(config)
  check_data(config)


def check_model(config: Config):
  """The architecture can be built, and its patches tile the images."""
  model, side = config.model, config.data.image_size
  stages = [units for units in model.stages if type(units) is int and units > 0]
  if len(stages) != len(model.stages):
    raise ConfigError(
      f"config.model.stages={model.stages} must hold numbers of residual units, one for each "
      "stage, such as (3, 4, 6, 3)."
    )
  try:
    module = models.configured(model)
  except ValueError as error:
    raise ConfigError(f"config.model.{error}") from error
  if not tiles(module, side):
    below = next((s for s in range(side, 0, -1) if tiles(module, s)), None)
    above = next(s for s in itertools.count(side) if tiles(module, s))
    raise ConfigError(
      f"config.data.image_size={side} is not divisible into the patches of {model.name}; "
      f"nearest: {', '.join(str(s) for s in (below, above) if s)}."
    )
  if model.attention == "cudnn" and model.compute_dtype != "bfloat16":
    raise ConfigError(
      "config.model.attention='cudnn' computes in bfloat16 only; set "
      "config.model.compute_dtype=bfloat16, or attention=xla."
    )


def tiles(module, side: int) -> bool:
  """Whether the module's patches cover a square image of this side; a ResNet has none."""
  if isinstance(module, models.ResNet):
    return True
  try:
    module.grid(side, side)
  except ValueError:
    return False
  return True


def check_batch(config: Config):
  """The batch can be cut into the parts of accumulation."""
  if config.batch_size % config.accumulation:
    parts = config.accumulation
    below = config.batch_size - config.batch_size % parts
    raise ConfigError(
      f"config.batch_size={config.batch_size} is not divisible by "
      f"config.accumulation={parts}; nearest: "
      f"{', '.join(str(b) for b in (below, below + parts) if b)}."
    )


def check_evaluation(config: Config):
  """As `check`, of what --mode=evaluate uses: neither training data nor a length is needed."""
  check_model(config)
  check_batch(config)
  check_resize(config)


def check_resize(config: Config):
  """The squares of evaluation fit the images that they are cut out of."""
  data = config.data
  given = {"evaluate_resize": data.evaluate_resize} | {
    f"evaluate.{name}.resize": dataset.resize
    for name, dataset in data.evaluate.items()
    if dataset.resize >= 0
  }
  for key, resize in given.items():
    if 0 != resize < data.image_size:
      raise ConfigError(
        f"config.data.{key}={resize} is smaller than config.data.image_size={data.image_size}, "
        f"which is cut out of it; make it 0 or at least {data.image_size}."
      )


def check_data(config: Config):
  """There is training data, a length of training, and crops that can be drawn."""
  data = config.data
  if not data.train.source:
    raise ConfigError(NO_DATA.format(label_key=data.train.label_key))
  if not config.duration.given():
    raise ConfigError("config.duration is 0; give it a length, such as --config.duration.epochs=7.")
  for key, most in (("crop_area", 1.0), ("crop_aspect", float("inf"))):
    pair = getattr(data, key)
    numbers = [x for x in pair if isinstance(x, (int, float)) and not isinstance(x, bool)]
    if len(pair) != 2 or len(numbers) != 2 or not 0 < pair[0] <= pair[1] <= most:
      raise ConfigError(
        f"config.data.{key}={pair} is not (least, largest) with "
        f"0 < least <= largest{' <= 1' if most == 1 else ''}; the default is "
        f"{getattr(type(data)(), key)}."
      )
  check_resize(config)
  if data.cache and data.cache_side < data.image_size:
    raise ConfigError(
      f"config.data.cache_side={data.cache_side} is smaller than "
      f"config.data.image_size={data.image_size}, so every crop would be enlarged; make it at "
      f"least {data.image_size}, or config.data.cache empty."
    )
  check_decay_rules(config.optimizer.decay_rules)


def check_decay_rules(rules):
  """The rules are pairs of a regex and a factor."""
  for rule in rules:
    try:
      pattern, factor = rule
      re.compile(pattern)
      0.0 + factor
    except (TypeError, ValueError, re.error) as error:
      raise ConfigError(
        f"config.optimizer.decay_rules holds {rule!r}; each rule is (regex, factor), "
        f"such as ('.*/kernel', 1.0): {error}."
      ) from error
