"""Wrong keys of groups whose names are the recipe's own."""

import pytest
from absl import flags

from vit_jax import command_line


@pytest.mark.parametrize(
  ("argument", "error", "message"),
  [
    ("few_shot.mine.seeds=1", KeyError("'mine'"), "config.few_shot.mine is not in the recipe"),
    ("data.evaluate.val.split=x", KeyError("'val'"), "config.data.evaluate.val is not in the rec"),
    (
      "few_shot.mine.seed=1",
      KeyError(),
      "config.few_shot.mine.seed is not a setting; nearest: config.seed, config.few_shot.mine.",
    ),
    (
      "compute_dtype=float32",
      AttributeError(),
      "config.compute_dtype is not a setting; nearest: config.model.compute_dtype, ",
    ),
    ("seed.x=1", KeyError(), "config.seed.x is not a setting; nearest: config.seed."),
    ("nearest.a.test.sauce=", KeyError(), "config.nearest.a.test.sauce is not a setting; nearest:"),
    ("nearest.a.k=", KeyError(), "config.nearest.a.k is not a setting"),
    (
      "nearest.a.neighbours=x",
      flags.IllegalFlagValueError("flag --config.nearest.a.neighbours=x: no"),
      "config.nearest.a.neighbours='x' cannot be read as int; try 20.",
    ),
    ("few_shot.mine.seeds=1", ValueError("else"), "else"),
  ],
)
def test_keys_below_names(argument, error, message):
  assert command_line.wrong_usage([f"--config.{argument}"], error).startswith(message)
