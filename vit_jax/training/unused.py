"""Settings that other settings make useless: a value that is not the default is refused.

The user would take it for a part of the experiment.
"""

import operator
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

from vit_jax.config import Config, ConfigError, Dataset
from vit_jax.process.text import shown

OF_HEADS = ("data.evaluate_resize", "class_names")  # no evaluation of features uses them
PARTS = ("train", "test")  # of a probe
OF_EVALUATION_SETS = ("resize", "classes")  # fields of `Dataset` that no other dataset uses


class Rule(NamedTuple):
  """When a setting counts.

  Attributes:
    key: the setting, without "config.".
    other: another setting.
    counts: whether the setting is used at this value of the other.
    remedy: a value of the other at which it is.
  """

  key: str
  other: str
  counts: Callable[[Any], bool]
  remedy: Any


def only(key: str, other: str, *values) -> Rule:
  """The rule for a setting that counts only if another has one of some values."""
  return Rule(key, other, values.__contains__, values[0])


RULES = (
  only("optimizer.beta1", "optimizer.kind", "adam"),
  only("optimizer.beta2", "optimizer.kind", "adam"),
  only("optimizer.epsilon", "optimizer.kind", "adam"),
  only("optimizer.momentum", "optimizer.kind", "sgd"),
  Rule("optimizer.ema_corrected", "optimizer.ema", bool, 0.9999),
  only("schedule.end_learning_rate", "schedule.decay", "cosine", "linear"),
  only("masked.rate", "objective", "masked_patches"),
  only("masked.target", "objective", "masked_patches"),
  only("loss.kind", "objective", "classification"),
  only("class_names", "new_head", False),
  only("non_finite.limit", "non_finite.action", "skip"),
  Rule("data.cache_side", "data.cache", bool, "DIR"),
  Rule("profile.first_step", "profile.steps", bool, 5),
)


def check(config: Config):
  """Refuses a value that has no effect, unless it is the default.

  Raises:
    ConfigError: names the setting, and the one that makes it useless.
  """
  usual = Config()
  for key, other, counts, remedy in RULES:
    value, cause = (operator.attrgetter(name)(config) for name in (key, other))
    if value != operator.attrgetter(key)(usual) and not counts(cause):
      raise ConfigError(
        f"config.{key}={shown(value)} has no effect with config.{other}={shown(cause)}; leave it "
        f"out, or change that, such as --config.{other}={remedy}."
      )
  check_datasets(config)
  check_pairs(config)


def check_pairs(config: Config, keys: Collection[str] | None = None):
  """Refuses few-shot probes and nearest neighbours that have one of their two sources.

  Args:
    config: the settings.
    keys: only if one of these settings is a source of the pair; None: always.

  Raises:
    ConfigError: names both.
  """
  for key, kinds in (("config.few_shot", config.few_shot), ("config.nearest", config.nearest)):
    for name, one in kinds.items():
      sources = {f"{key}.{name}.{part}.source".removeprefix("config.") for part in PARTS}
      asked = keys is None or not sources.isdisjoint(keys)
      if asked and bool(one.train.source) != bool(one.test.source):
        there, missing = ("train", "test") if one.train.source else ("test", "train")
        raise ConfigError(
          f"{key}.{name}.{there}.source has no effect without {key}.{name}.{missing}.source; give "
          "both, or make both empty."
        )


def check_mode(config: Config, *, begun: bool):
  """Refuses settings of --mode=evaluate in a training.

  Args:
    config: the settings.
    begun: whether the run resumes.

  Raises:
    ConfigError: names the setting.
  """
  usual = Config()
  for key in ("evaluate_step",) if begun else ("evaluate_step", "evaluate_average"):
    if getattr(config, key) != getattr(usual, key):
      raise ConfigError(
        f"config.{key}={shown(getattr(config, key))} has no effect in training; add "
        "--mode=evaluate, or leave it out."
      )


def check_without_head(given: Collection[str]):
  """Refuses settings of the command line that count only where a head is scored.

  Raises:
    ConfigError: names the setting.
  """
  for key in OF_HEADS:
    if key in given:
      raise ConfigError(
        f"config.{key} has no effect: no set of config.data.evaluate is scored; leave it out."
      )


def check_datasets(config: Config, keys: Collection[str] | None = None):
  """Refuses settings of evaluation sets in other datasets.

  Args:
    config: the settings.
    keys: only these settings are checked, such as "nearest.knn.test.resize"; None: all.

  Raises:
    ConfigError: names the setting.
  """
  for place, dataset in others(config):
    for field in OF_EVALUATION_SETS:
      value = getattr(dataset, field)
      asked = keys is None or f"{place.removeprefix('config.')}.{field}" in keys
      if asked and value != getattr(Dataset(), field):
        raise ConfigError(
          f"{place}.{field}={shown(value)} has no effect: only the sets of config.data.evaluate "
          "use it; leave it out."
        )


def others(config: Config) -> Iterator[tuple[str, Dataset]]:
  """Yields (the key of its setting, dataset) for all datasets but the evaluation sets."""
  yield from config.data.training().items()
  yield from named("config.reconstruct", config.reconstruct)
  for key, kinds in (("config.few_shot", config.few_shot), ("config.nearest", config.nearest)):
    for name, one in kinds.items():
      yield from named(f"{key}.{name}", dict(train=one.train, test=one.test))


def named(key: str, datasets: Mapping[str, Dataset]) -> Iterator[tuple[str, Dataset]]:
  """Yields (the key of its setting, dataset); the keys begin with `key`."""
  yield from ((f"{key}.{name}", dataset) for name, dataset in datasets.items())
