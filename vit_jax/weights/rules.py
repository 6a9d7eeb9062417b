"""Rules for the values in JSON files beside weights, of this project and of others."""

import pathlib
import typing

from vit_jax.storage import files

MAX_BYTES = 64 * 2**20


class Rule(typing.NamedTuple):
  """A condition on a value, as a test and in words."""

  test: typing.Callable[[typing.Any], bool]
  words: str

  def broken(self, key: str, value) -> str:
    """A message if the value of `key` breaks the rule; "" if it does not."""
    if self.test(value):
      return ""
    return f"{key} is {repr(value)[:100]} and must be {self.words}"


Rules = dict[str, tuple[Rule, typing.Any]]  # {key: (rule, default if the key is missing)}


def one_of(*values) -> Rule:
  """The rule that a value is one of a few."""
  return Rule(lambda value: value in values, " or ".join(map(repr, values)))


def whole(low: int, high: int) -> Rule:
  """The rule that a value is a whole number."""
  return Rule(lambda x: type(x) is int and low <= x <= high, f"a number from {low} to {high:,}")


def number(low: float, high: float) -> Rule:
  """The rule that a value is a number."""
  return Rule(lambda x: type(x) in (int, float) and low <= x <= high, f"from {low} to {high}")


def three(rule: Rule) -> Rule:
  """The rule that a value is a list of three values that each follow `rule`."""

  def test(x) -> bool:
    return isinstance(x, list) and len(x) == 3 and all(map(rule.test, x))

  return Rule(test, f"three numbers, each {rule.words}")


def or_none(rule: Rule) -> Rule:
  """The rule that a value follows `rule`, or is None."""
  return Rule(lambda x: x is None or rule.test(x), f"{rule.words}, or null")


TEXTS = Rule(
  lambda x: isinstance(x, list) and all(isinstance(text, str) for text in x), "a list of texts"
)


def read_json(path: pathlib.Path) -> dict:
  """Reads a JSON object from a file of bounded size.

  Raises:
    ValueError: the file is too large, or holds something else.
  """
  try:
    return files.read_json(path, most=MAX_BYTES)
  except (ValueError, OSError) as error:
    raise ValueError(f"{path} cannot be read as JSON: {error}.") from error


def checked(values: dict, rules: Rules, path: pathlib.Path) -> dict:
  """The values in the file `path`, with a default for each key that is missing.

  Raises:
    ValueError: they ask for something that this project does not compute; names the keys.
  """
  values = {key: default for key, (_, default) in rules.items()} | values
  messages = [rule.broken(key, values[key]) for key, (rule, _) in rules.items()]
  wrong = list(filter(None, messages))
  if wrong:
    raise ValueError(f"{path} asks for what this project does not compute: {'; '.join(wrong)}.")
  return values


def read_by_rules(path: pathlib.Path, rules: Rules) -> dict:
  """As `checked`, for the JSON in a file."""
  return checked(read_json(path), rules, path)
