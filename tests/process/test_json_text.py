"""JSON for other programs, also of values that are not numbers."""

import json
import math

from vit_jax.process import text


def test_what_is_written_is_json_and_reads_back():
  refused = []
  value = {"a": math.nan, "b": [math.inf, -math.inf, 1.5], "c": {"d": ("x", None, True, 3)}}
  found = json.loads(text.json_text(value), parse_constant=refused.append)
  assert found == {"a": "nan", "b": ["inf", "-inf", 1.5], "c": {"d": ["x", None, True, 3]}}
  assert not refused  # NaN and Infinity are no JSON


def test_values_are_numbers_again():
  values = {"step": 3, "weights": "inf.npz", "test/loss": math.nan, "x": -math.inf, "y": 0.5}
  found = text.with_numbers(json.loads(text.json_text(values)))
  assert math.isnan(found.pop("test/loss"))
  assert found == {"step": 3, "weights": "inf.npz", "x": -math.inf, "y": 0.5}
