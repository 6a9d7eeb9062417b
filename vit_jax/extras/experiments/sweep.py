"""Chooses a learning rate, then measures the test accuracy (Section 4.1, Appendix B.1.1).

Each learning rate of a grid is used to train on a part of the training set; the run is scored on
the rest, the development part. The rate with the best development accuracy is then used to train
on the whole training set with several seeds, and only these runs are scored on the test set. A rule
that needs no search, such as BiT's, can be tried as well.

A sweep is a study whose candidates are tried with a recipe of their own; each set that the final
recipe scores is a cell, and all cells share the runs.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from vit_jax import recipes
from vit_jax.config import ConfigError
from vit_jax.evaluation import catalogue
from vit_jax.extras.experiments.studies import Cell, Choice, Drawing, Score, Stage, Study

RATE = "schedule.learning_rate"
OWN = ("seed", RATE)  # settings that the sweep itself sets
# The test set is scored once, after the last step.
ONCE = {f"evaluate_every.{unit}": 0 for unit in ("steps", "epochs", "examples")}


def numbers(flag: str, text: str, kind: type, example: str) -> tuple:
  """Parses different numbers above 0, separated by commas.

  Args:
    flag: the flag that holds them, for messages.
    text: the value of the flag.
    kind: int or float.
    example: an example of a good value.

  Raises:
    ConfigError: there is none, an entry is no such number, or one is repeated.
  """
  values = []
  for word in filter(None, map(str.strip, text.split(","))):
    try:
      values.append(kind(word))
    except ValueError:
      values.append(math.nan)
    if not 0 < values[-1] < math.inf:
      raise ConfigError(f"{flag}={text!r}: {word!r} is no number above 0; give such as {example}.")
  if not values or len(set(values)) < len(values):
    raise ConfigError(f"{flag}={text!r} must hold each number once; give such as {example}.")
  return tuple(values)


def rates(text: str) -> tuple[float, ...]:
  """Parses a grid of learning rates; raises as `numbers`."""
  return numbers("--learning-rates", text, float, "0.003,0.01")


def settings_of(overrides: Sequence[str], taken: Sequence[str], instead: str) -> dict[str, str]:
  """--config.KEY=VALUE as {key: value}.

  Raises:
    ConfigError: a key is one of those that the tool sets itself; `instead` says what to give.
  """
  settings = dict(flag.removeprefix("--config.").split("=", 1) for flag in overrides)
  for key in taken:
    if key in settings:
      raise ConfigError(f"--config.{key} is what this tool sets itself; leave it out{instead}.")
  return settings


def study(
  development: str,
  final: str,
  *,
  learning_rates: Sequence[float],
  seeds: int,
  overrides: Sequence[str] = (),
  rule: Mapping[str, Any] | None = None,
) -> Study:
  """The study that does a sweep. Of equally good candidates it takes the smallest rate.

  Args:
    development: recipe that trains on a part of the training set and scores the rest of it.
    final: recipe that trains on all of it and scores the test set.
    learning_rates: the grid.
    seeds: number of final runs.
    overrides: --config.KEY=VALUE for every run.
    rule: settings of a rule to try as well; None: no rule.

  Raises:
    ConfigError: an override sets what the sweep itself sets, a recipe or a setting is wrong, or a
      recipe scores no set, or that of the development part more than one.
  """
  settings = settings_of(overrides, OWN, ", and give --learning-rates or --seeds")
  development_score, *more = scores_of(development, overrides)
  if more:
    raise ConfigError(
      f"{development} scores {1 + len(more)} sets (config.evaluate); give a recipe that scores one."
    )
  options = [{RATE: rate} for rate in sorted(learning_rates)]
  if rule:
    options.append({key: value for key, value in rule.items() if key not in settings})
  choice = Choice(tuple(options), settings, (development,), development_score)
  stage = Stage(final, settings | ONCE, "final", choice=choice)
  cells = []
  for score in scores_of(final, overrides):
    label = score.metric.rpartition("/")[0]
    cells.append(Cell(label, stage, {}, score))
  drawing = Drawing(x=RATE, by="part", log=True, label="top-1")
  return Study(tuple(cells), drawing, development_score, seeds)


def scores_of(recipe: str, overrides: Sequence[str]) -> list[Score]:
  """The accuracy on each set that a recipe scores; the set named test comes first.

  Raises:
    ConfigError: there is no such recipe, a setting is wrong, or it scores no set.
  """
  config = recipes.resolve(recipe, overrides)
  keys = catalogue.headlines(catalogue.names(config))
  of_head = [key for key in keys if config.evaluate[key.rpartition("/")[0]].scores_head]
  names = sorted(of_head, key=lambda key: not key.startswith("test/"))
  if not names:
    raise ConfigError(f"{recipe} scores 0 sets (config.evaluate); give a recipe that does.")
  return [Score(name) for name in names]
