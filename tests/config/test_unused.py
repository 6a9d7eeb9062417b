"""A setting that has no effect with the others is refused, and accepted where it has one."""

import dataclasses
import functools
import re

import pytest

from vit_jax import config as c
from vit_jax.config import unused

# Values that are not the default, where no rule below finds one.
OTHER = {
  "data.crop_area": (0.5, 1.0),
  "data.crop_aspect": (1.0, 1.0),
  "optimizer.decay_rules": ((".*", 1.0),),
  "schedule.drops": (0.5,),
}


def settings(kind=c.Config, path="", used_if=()):
  """Yields (key, field, conditions) of every setting."""
  for field in dataclasses.fields(kind):
    conditions = (*used_if, *field.metadata.get("used_if", ()))
    if dataclasses.is_dataclass(field.type):
      yield from settings(field.type, f"{path}{field.name}.", conditions)
    else:
      yield f"{path}{field.name}", field, conditions


FIELDS = {key: field for key, field, _ in settings()}
CONDITIONS = {key: conditions for key, _, conditions in settings() if conditions}


def other_value(key):
  """A value of a setting that is not its default."""
  field = FIELDS[key]
  if field.type is bool:
    return not field.default
  if choices := field.metadata["choices"]:
    return next(choice for choice in choices if choice != field.default)
  if field.type in (int, float):
    meta = field.metadata
    return field.type(meta["high"] if meta["low"] == field.default else meta["low"])
  return OTHER.get(key, "some")


def with_values(values):
  whole = c.to_dict(c.Config())
  for key, value in values.items():
    *groups, last = key.split(".")
    functools.reduce(dict.__getitem__, groups, whole)[last] = value
  return c.from_dict(whole)


def fulfilled(key, values):
  """The value of another setting at which a condition holds."""
  return values[0] if values else (7 if key in LENGTHS else other_value(key))


LENGTHS = ("checkpoint.every", "evaluate_every")


def assignments(conditions):
  """Settings by key that make all conditions hold."""
  found = {}
  for key, *values in conditions:
    place = f"{key}.steps" if key in LENGTHS else key
    found[place] = fulfilled(key, values)
    if key in LENGTHS:  # a length has one unit
      found |= {f"{key}.{unit}": 0 for unit in ("epochs", "examples")}
  return found


def violated(condition):
  """Settings by key that break a condition."""
  key, *values = condition
  if key in LENGTHS:
    return {f"{key}.{unit}": 0 for unit in ("steps", "epochs", "examples")}
  if not values:
    return {key: FIELDS[key].type()}
  if FIELDS[key].metadata["choices"]:
    return {key: next(x for x in FIELDS[key].metadata["choices"] if x not in values)}
  return {key: (not values[0]) if isinstance(values[0], bool) else other_value(key)}


@pytest.mark.parametrize("key", CONDITIONS)
def test_a_setting_counts_only_where_its_conditions_hold(key):
  conditions = CONDITIONS[key]
  good = assignments(conditions) | {key: other_value(key)}
  unused.check(with_values(good))
  for condition in conditions:
    broken = with_values(good | violated(condition))
    with pytest.raises(c.ConfigError, match=re.escape(f"config.{key}=")) as refused:
      unused.check(broken)
    assert f"config.{condition[0]}" in str(refused.value)


def test_the_message_says_what_to_do():
  for values, message in {
    "masked.rate=0.25": "config.masked.rate=0.25 has no effect with config.objective="
    "'classification'; give --config.objective=masked_patches, or leave config.masked.rate at 0.5.",
    "new_head=True": "config.new_head=True has no effect without config.init_from; give "
    "--config.init_from too, or leave config.new_head at False.",
  }.items():
    key, _, value = values.partition("=")
    with pytest.raises(c.ConfigError) as refused:
      unused.check(with_values({key: {"0.25": 0.25, "True": True}[value]}))
    assert str(refused.value) == message


def test_conditions_name_settings():
  groups = {".".join(key.split(".")[:-1]) for key in FIELDS}
  for conditions in CONDITIONS.values():
    for key, *values in conditions:
      assert key in FIELDS or (key in groups and not values)
