"""The one place where a setting that is not given gets its value.

A setting that has no effect with the others, and is not at its default, is refused here too.
"""

import dataclasses
import functools
import graphlib
import operator
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

from vit_jax.config import fields
from vit_jax.config.fields import AUTO, LEFT_TO_RULE, Duration, Rule, group_in, is_auto, rule_of
from vit_jax.config.run import Config
from vit_jax.config.suggestions import has
from vit_jax.process.errors import ConfigError
from vit_jax.process.text import shown

Facts = Mapping[str, Callable[[Config], Any]]  # by their names, `vit_jax.config.fields.FACTS`
# Prefixes of what a rule reads.
ASKED = "asked."
FACTS = "facts."
# Origins of a value that is given, and of one that a run began with.
GIVEN = "the command line"
RECORDED = "the checkpoint"


class Unknown(Exception):
  """A fact that a rule reads is not known yet."""


def resolve(config: Config, facts: Facts, recorded: Config | None = None) -> Config:
  """The settings, with a value for each AUTO whose rule reads only what is known.

  Their origins are added to `config.origins`, and their keys to `config.derived`.

  Args:
    config: the settings.
    facts: what is known: functions of the settings that a fact depends on, by its name. They are
      called when a rule needs them.
    recorded: the settings in the newest checkpoint of the run; None: it is a new one.
  """
  asked = config
  rules = rules_of(config)
  origins = dict(config.origins)
  derived = [*config.derived]
  for key in in_order(rules):
    if not is_auto(value_of(config, key)):
      continue
    try:
      kept = _as_recorded(key, rules[key], asked, config, recorded)
      value, words = kept or _derived(rules[key], asked, config, facts)
    except Unknown:
      continue
    config = with_value(config, key, value)
    origins[key] = words
    if not kept or key in recorded.derived:
      derived.append(key)
  return traced(config, origins, derived)


def left(config: Config) -> list[str]:
  """The keys of the settings that are still AUTO."""
  return [key for key in rules_of(config) if is_auto(value_of(config, key))]


def check_known(config: Config, later: Collection[str] = ()):
  """Checks that nothing is AUTO any more, but for the keys `later`.

  Raises:
    ConfigError: names a setting whose rule reads what is not known here.
  """
  for key, rule in rules_of(config).items():
    if key not in later and is_auto(value_of(config, key)):
      raise ConfigError(
        f"config.{key}={AUTO} follows from {rule.says}, which is not known here; give it."
      )


def rules_of(group, path: str = "") -> dict[str, Rule]:
  """The rules of the settings of a group, by their keys."""
  return dict(_rules(group, path))


def in_order(rules: Mapping[str, Rule]) -> list[str]:
  """The keys of the rules; each comes after those that it reads.

  Raises:
    graphlib.CycleError: rules read one another in a circle.
  """
  graph = {key: [name for name in rule.reads if name in rules] for key, rule in rules.items()}
  return [*graphlib.TopologicalSorter(graph).static_order()]


def value_of(config: Config, key: str) -> Any:
  """The value of a setting."""
  return functools.reduce(_member, key.split("."), config)


def _member(group, name: str):
  """A field of a group, or one of several groups by name."""
  if isinstance(group, Mapping):
    return group[name]
  return getattr(group, name)


def with_value(group, key: str, value):
  """The group with another value of one setting."""
  name, _, rest = key.partition(".")
  inner = _member(group, name)
  if rest:
    value = with_value(inner, rest, value)
  if isinstance(group, Mapping):
    return {**group, name: value}
  return dataclasses.replace(group, **{name: value})


def asked_of(config: Config) -> Config:
  """The settings as they were asked for: AUTO where a rule gave the value."""
  for key in derived(config):
    config = left_to_rule(config, key)
  return traced(config, dict(config.origins), ())


def traced(config: Config, origins: Mapping[str, str], derived: Collection[str]) -> Config:
  """The settings with a record of where they come from."""
  return dataclasses.replace(config, origins=tuple(origins.items()), derived=tuple(derived))


def derived(config: Config) -> list[str]:
  """The keys of the settings whose values rules gave."""
  rules = rules_of(config)
  return [key for key in config.derived if key in rules]


def of_facts(config: Config, facts: Collection[str]) -> list[str]:
  """The keys of the settings whose rules read one of these facts."""
  read = {FACTS + name for name in facts}
  return [key for key, rule in rules_of(config).items() if not read.isdisjoint(rule.reads)]


def left_to_rule(config: Config, key: str) -> Config:
  """The settings with one of them left to its rule."""
  if isinstance(value_of(config, key), Duration):
    return with_value(config, key, LEFT_TO_RULE)
  return with_value(config, key, AUTO)


def _derived(rule, asked, config, facts) -> tuple[Any, str]:
  return rule.derive(*(_read(name, asked, config, facts) for name in rule.reads))


def _read(name, asked, config, facts):
  """The argument of a rule for one of its `reads`."""
  if name.startswith(FACTS):
    return functools.partial(_fact, name.removeprefix(FACTS), config, facts)
  if name.startswith(ASKED):
    return value_of(asked, name.removeprefix(ASKED))
  value = value_of(config, name)
  if is_auto(value):
    raise Unknown(name)
  return value


def _fact(name, config, facts):
  if name not in facts:
    raise Unknown(name)
  return facts[name](config)


def _as_recorded(key, rule, asked, config, recorded) -> tuple[Any, str] | None:
  """The value of a recorded run and its origin; None if something that decides it has changed."""
  if recorded is None or rule.stays == "never":
    return None
  try:
    if is_auto(value := value_of(recorded, key)):
      return None
    decide = ()
    if rule.stays == "while":
      decide = (name for name in rule.reads if name not in rule.beside)
    if not all(_is_as_recorded(name, asked, config, recorded) for name in decide):
      return None
  except (AttributeError, KeyError):  # of another kind, or a name that it did not have
    return None
  origin = RECORDED if dict(recorded.origins).get(key) else ""
  return value, origin


def _is_as_recorded(name, asked, config, recorded) -> bool:
  """Whether one of a rule's `reads` is as in a recorded run; facts do not count."""
  if name.startswith(FACTS):
    return True
  if not name.startswith(ASKED):
    return value_of(config, name) == value_of(recorded, name)
  name = name.removeprefix(ASKED)
  if is_auto(value := value_of(asked, name)):
    return True  # it stays as it was
  return name not in recorded.derived and value == value_of(recorded, name)


def _rules(group, path) -> Iterator[tuple[str, Rule]]:
  for field in _with_rules(type(group)):
    key = f"{path}{field.name}"
    value = getattr(group, field.name)
    if rule := rule_of(field):
      yield key, rule
    elif group_in(field).by_name:
      for name, item in value.items():
        yield from _rules(item, f"{key}.{name}.")
    else:
      yield from _rules(value, f"{key}.")


@functools.cache
def _with_rules(settings: type) -> list[dataclasses.Field]:
  """The fields of a group that have a rule or hold groups that may; most have none."""

  def may(field):
    inner = group_in(field)
    return rule_of(field) or (inner and not inner.listed)

  return [field for field in dataclasses.fields(settings) if may(field)]


def check_rules(rules: Mapping[str, Rule]):
  """Checks that rules read only facts that exist, and do not read one another in a circle.

  Raises:
    ValueError: a rule does.
  """
  in_order(rules)
  for key, rule in rules.items():
    for name in rule.reads:
      if name.startswith(FACTS) and name.removeprefix(FACTS) not in fields.FACTS:
        raise ValueError(f"the rule of {key} reads {name}, which is no fact.")


check_rules(rules_of(Config()))


class Changed(NamedTuple):
  """A setting that is not at its default; its conditions are those of `fields.setting`."""

  key: str
  value: Any
  default: Any
  used_if: tuple


def check_unused(asked: Config, config: Config):
  """Refuses settings without effect.

  Args:
    asked: the settings as they were given.
    config: the same, with what they leave to rules.

  Raises:
    ConfigError: names the setting, and the one that makes it useless.
  """
  for setting in changed(asked, Config()):
    for condition in setting.used_if:
      if not _holds(condition, config):
        _refuse(setting, condition, config)


def _holds(condition: tuple, config: Config) -> bool:
  """Whether a condition holds; one on a setting that is AUTO is checked later, with its value."""
  other, *values = condition
  cause = operator.attrgetter(other)(config)
  if cause == AUTO:
    return True
  if values:
    return cause in values
  return bool(cause)


def _refuse(setting: Changed, condition: tuple, config: Config):
  other, *values = of_kinds(condition)
  cause = operator.attrgetter(other)(config)
  if values:
    because = f"with config.{other}={shown(cause)}"
    remedy = f"--config.{other}={values[0]}"
  else:
    because = f"without config.{other}"
    remedy = f"--config.{other} too"
  raise ConfigError(
    f"config.{setting.key}={shown(setting.value)} has no effect {because}; give {remedy}, or leave "
    f"config.{setting.key} at {shown(setting.default)}."
  )


def of_kinds(condition: tuple) -> tuple:
  """The condition, with an attribute of a group's class replaced by the kinds that have it true.

  So ("objective.trains_head",) becomes ("objective.kind", "classification"). A condition on a
  setting, such as ("optimizer.weight_decay",), stays as it is.
  """
  key, *values = condition
  path, _, name = key.rpartition(".")
  groups = {field.name: group_in(field) for field in dataclasses.fields(Config)}
  group = groups.get(path)
  if values or group is None or not group.default or has(group.settings(group.default), name):
    return condition
  return f"{path}.kind", *(kind for kind, of_kind in group.classes() if getattr(of_kind, name))


def changed(group, default, path: str = "", used_if: tuple = ()) -> Iterator[Changed]:
  """Yields the settings of a group that differ from those of `default`, and of groups in it."""
  for field in dataclasses.fields(group):
    value = getattr(group, field.name)
    usual = getattr(default, field.name)
    if dataclasses.is_dataclass(value) and type(value) is not type(usual):
      usual = type(value)()  # of another kind
    conditions = (*used_if, *field.metadata.get("used_if", ()))
    if dataclasses.is_dataclass(value):
      yield from changed(value, usual, f"{path}{field.name}.", conditions)
    elif value != field.metadata.get("usual") and not is_off(value, usual):
      yield Changed(f"{path}{field.name}", value, usual, conditions)


def is_off(value, usual) -> bool:
  """Whether a setting is at its default; one that has a rule may also be switched off."""
  return value in (usual, AUTO) or (usual == AUTO and not value)
