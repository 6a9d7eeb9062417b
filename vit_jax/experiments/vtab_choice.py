"""The setting for all tasks of VTAB-1k, chosen on their 200 validation images (Appendix B.1.1)."""

import dataclasses
import itertools

from vit_jax.config import ConfigError
from vit_jax.experiments.sweep import rates
from vit_jax.recipes.finetuning import warmup

MAX_STEPS = 10**6


@dataclasses.dataclass(frozen=True)
class Setting:
  """A learning rate and a length, the same for every task."""

  learning_rate: float
  steps: int

  def option(self) -> dict[str, float]:
    """As a candidate of a study; the warm-up goes with the length."""
    return {
      "schedule.learning_rate": self.learning_rate,
      "duration.steps": self.steps,
      "schedule.warmup.steps": warmup(self.steps).steps,
    }


def grid(learning_rates: str, steps: str) -> tuple[Setting, ...]:
  """Every pair of a learning rate and a number of steps; () if both texts are empty.

  Raises:
    ConfigError: only one is given, or an entry is wrong.
  """
  if not learning_rates and not steps:
    return ()
  if not learning_rates or not steps:
    raise ConfigError(
      "--learning-rates and --steps go together; give both, such as --learning-rates=0.003,0.01 "
      "--steps=500,2500."
    )
  return tuple(Setting(*pair) for pair in itertools.product(rates(learning_rates), lengths(steps)))


def lengths(text: str) -> tuple[int, ...]:
  """Parses numbers of steps, separated by commas.

  Raises:
    ConfigError: an entry is not a whole number of steps, or a number is repeated.
  """
  words = [word.strip() for word in text.split(",") if word.strip()]
  for word in words:
    if not (word.isascii() and word.isdecimal() and 0 < int(word[:9]) <= MAX_STEPS):
      raise ConfigError(f"--steps={text!r} holds {word!r}, no number of steps; give such as 2500.")
  found = tuple(map(int, words))
  if len(set(found)) < len(found) or not found:
    raise ConfigError(f"--steps={text!r} must hold each number of steps once, such as 500,2500.")
  return found
