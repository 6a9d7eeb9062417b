"""Checks of the settings that are regexes of parameter names, against the parameters of the run."""

import re
from collections.abc import Callable

import jax

from vit_jax import models
from vit_jax.config import Config, ConfigError, Optimizer, similar
from vit_jax.learning import optim
from vit_jax.models.stacking import STACKED
from vit_jax.process.text import shown
from vit_jax.storage.tree import flatten

MAX_FACTOR = 1e4  # of a rule of weight decay


def check_decay_rules(config: Config):
  """Checks that each rule is (regex, factor), and that none tells stacked blocks apart."""
  rules = config.optimizer.decay_rules
  for rule in rules:
    try:
      pattern, factor = rule
      re.compile(pattern)
      if not 0.0 <= factor <= MAX_FACTOR:
        raise ValueError(f"the factor must lie in 0 to {MAX_FACTOR:g}")
    except (TypeError, ValueError, OverflowError, RecursionError, re.error) as error:
      raise ConfigError(
        f"config.optimizer.decay_rules holds {shown(rule)}; each rule is (regex, factor), "
        f"such as ('.*/kernel', 1.0): {error}."
      ) from error
  if config.model.scan and rules != Optimizer().decay_rules:
    said = f"config.optimizer.decay_rules={shown(rules)}"
    check_blocks(said, lambda name: optim.decay_factor(name, rules), parameters(config))


def check_trainable(config: Config):
  """Checks that the regex matches parameters, and does not tell stacked blocks apart."""
  pattern = config.optimizer.trainable
  if pattern == Optimizer().trainable:
    return
  said = f"config.optimizer.trainable={shown(pattern)}"
  try:
    match = re.compile(pattern).fullmatch
  except (OverflowError, RecursionError, re.error) as error:
    raise ConfigError(f"{said} is not a regex: {error}.") from error
  shapes = parameters(config)
  check_blocks(said, lambda name: bool(match(name)), shapes)
  if not any(map(match, shapes)):
    raise ConfigError(
      f"{said} matches no parameter of {config.model.name}; nearest: {similar(pattern, shapes)}."
    )


def parameters(config: Config) -> dict[str, tuple[int, ...]]:
  """The shape of every parameter of the run, by name; computes nothing."""
  objective = config.objective.configured(config, models.configured(config.model.with_classes(1)))
  init = lambda: objective.init(jax.random.key(0), config.data.image_size)
  return {name: leaf.shape for name, leaf in flatten(jax.eval_shape(init)).items()}


def check_blocks(said: str, value: Callable, shapes: dict[str, tuple[int, ...]]):
  """Checks that a setting is the same for an array of stacked blocks as for each of its blocks.

  With config.model.scan=True only the array has a name, so what the setting says of a block's own
  name would not be done.

  Args:
    said: the setting, for the message.
    value: what the setting says of a parameter's name.
    shapes: of the parameters.

  Raises:
    ConfigError: it differs.
  """
  for name, shape in shapes.items():
    blocks = range(shape[0]) if f"{STACKED}/" in name else ()
    for block in blocks:
      alone = name.replace(f"{STACKED}/", f"{STACKED}_{block}/")
      if value(alone) != value(name):
        raise ConfigError(
          f"{said} names single blocks, such as {alone}, but config.model.scan=True stacks all "
          f"blocks in one array ({name}); use --config.model.scan=False, or write {STACKED}.* for "
          "all blocks."
        )
