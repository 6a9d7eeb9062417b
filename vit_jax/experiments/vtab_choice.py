"""The setting for all tasks of VTAB-1k, chosen on their 200 validation images (Appendix B.1.1)."""

import dataclasses
import itertools
import statistics

from vit_jax.config import ConfigError
from vit_jax.experiments import runs
from vit_jax.experiments.sweep import rates
from vit_jax.recipes.finetuning import warmup

MOST_STEPS = 10**6


@dataclasses.dataclass(frozen=True)
class Setting:
  """A learning rate and a length, the same for every task."""

  learning_rate: float
  steps: int

  def name(self) -> str:
    """In a message and as the name of a folder."""
    return f"{self.learning_rate}-{self.steps}"

  def overrides(self) -> tuple[str, ...]:
    """The flags of a run with this setting; the warm-up goes with the length."""
    return (
      f"--config.schedule.learning_rate={self.learning_rate}",
      f"--config.duration.steps={self.steps}",
      f"--config.schedule.warmup.steps={warmup(self.steps).steps}",
    )


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
    if not (word.isascii() and word.isdecimal() and 0 < int(word[:9]) <= MOST_STEPS):
      raise ConfigError(f"--steps={text!r} holds {word!r}, no number of steps; give such as 2500.")
  found = tuple(map(int, words))
  if len(set(found)) < len(found) or not found:
    raise ConfigError(f"--steps={text!r} must hold each number of steps once, such as 500,2500.")
  return found


def choose(tried: dict[Setting, list[runs.Run]]) -> Setting:
  """The setting with the best mean accuracy over the tasks; of equally good ones the first.

  Args:
    tried: the development runs with each setting, one for each task.

  Raises:
    ConfigError: not all runs are done.
  """
  means = {setting: mean(some) for setting, some in tried.items()}
  return max(means, key=means.get)


def mean(some: list[runs.Run]) -> float:
  """The mean top-1 accuracy of runs.

  Raises:
    ConfigError: one is not done.
  """
  found = [runs.top1(run) for run in some]
  if None in found:
    raise ConfigError(f"The run in {some[found.index(None)].folder} is not done; run it first.")
  return statistics.fmean(found)
