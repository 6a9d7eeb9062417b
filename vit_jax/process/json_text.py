"""Text in JSON, which has no NaN and no infinities: they become the strings nan, inf and -inf."""

import json
import math
from typing import Any

STRINGS = ("nan", "inf", "-inf")


def written(value: Any) -> str:
  """The text of dicts, lists, strings, numbers and None."""
  return json.dumps(finite(value), indent=2, allow_nan=False)


def finite(value: Any) -> Any:
  """The value with strings in place of floats that are not finite."""
  if isinstance(value, dict):
    return {key: finite(element) for key, element in value.items()}
  if isinstance(value, (list, tuple)):
    return [finite(element) for element in value]
  if isinstance(value, float) and not math.isfinite(value):
    return str(value)
  return value


def with_numbers(values: dict) -> dict:
  """The values of a JSON object, with floats in place of the strings of `finite`."""
  numbers = {key: float(value) for key, value in values.items() if value in STRINGS}
  return values | numbers
