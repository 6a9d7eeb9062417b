"""Chooses a learning rate, then measures the test accuracy (Section 4.1, Appendix B.1.1).

Each learning rate of a grid is used to train on a part of the training set; the run is scored on
the rest, the development part. The rate with the best development accuracy is then used to train
on the whole training set with several seeds, and only these runs are scored on the test set. A rule
that needs no search, such as BiT's, can be tried beside the rates.

A sweep is a study of one cell, whose candidates are tried with a recipe of their own.
"""

import dataclasses
import math
import pathlib
import statistics
from collections.abc import Mapping
from typing import Any

from vit_jax import recipes
from vit_jax.config import ConfigError
from vit_jax.evaluation import catalogue
from vit_jax.experiments import runs
from vit_jax.experiments.studies import Cell, Choice, Drawing, Score, Stage, Study
from vit_jax.experiments.studies.jobs import FIRST, Job
from vit_jax.experiments.studies.store import RunStore
from vit_jax.plots import charts, curves
from vit_jax.process.text import aligned
from vit_jax.storage import files

TABLE, PICTURE = "sweep.csv", "sweep.png"
RULE = "hyperrule"  # stands in the place of a learning rate
RATE = "schedule.learning_rate"
OWN = ("seed", RATE)  # settings that the sweep itself sets
# The test set is scored once, after the last step.
ONCE = {f"evaluate_every.{unit}": 0 for unit in ("steps", "epochs", "examples")}


@dataclasses.dataclass(frozen=True)
class Sweep:
  """The description of a sweep.

  Attributes:
    development: recipe that trains on a part of the training set and scores the rest of it.
    final: recipe that trains on all of it and scores the test set.
    learning_rates: the grid.
    seeds: number of final runs.
    folder: holds the workdirs of all runs, and the results.
    overrides: --config.KEY=VALUE for every run.
    rule: settings of a rule that is tried too; {}: none.
  """

  development: str
  final: str
  learning_rates: tuple[float, ...]
  seeds: int
  folder: pathlib.Path
  overrides: tuple[str, ...] = ()
  rule: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def numbers(flag: str, text: str, kind: type, example: str) -> tuple:
  """Parses different numbers above 0, separated by commas.

  Args:
    flag: that holds them, for messages.
    text: its value.
    kind: int or float.
    example: of a good value.

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


def study(sweep: Sweep) -> Study:
  """The study that does a sweep. Of equally good candidates it takes the smallest rate.

  Raises:
    ConfigError: an override sets what the sweep itself sets, a recipe or a setting is wrong, or a
      recipe scores no set, or that of the development part more than one.
  """
  given = dict(one.removeprefix("--config.").split("=", 1) for one in sweep.overrides)
  for key in OWN:
    if key in given:
      raise ConfigError(
        f"--config.{key} is what a sweep sets itself; leave it out, and give --learning-rates or "
        "--seeds."
      )
  part, *more = scores_of(sweep.development, sweep.overrides)
  if more:
    raise ConfigError(
      f"{sweep.development} scores {1 + len(more)} sets (config.evaluate); give a recipe that "
      "scores one."
    )
  options = [{RATE: rate} for rate in sorted(sweep.learning_rates)]
  if sweep.rule:
    options.append({key: value for key, value in sweep.rule.items() if key not in given})
  choice = Choice(tuple(options), given, (sweep.development,), part)
  stage = Stage(sweep.final, given | ONCE, "final", choice=choice)
  cell = Cell(sweep.final, stage, {})
  whole, *_ = scores_of(sweep.final, sweep.overrides)
  return Study((cell,), Drawing(x=""), whole, sweep.seeds)


def scores_of(recipe: str, overrides: tuple[str, ...]) -> list[Score]:
  """The accuracy on each set that a recipe scores, on the one named test first.

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


def named(option: dict) -> float | str:
  """A candidate in the results: its learning rate, or `RULE`."""
  return option[RATE] if list(option) == [RATE] else RULE


def report(sweep: Sweep, some: Study) -> dict:
  """The result of a sweep whose runs are all done, ready for JSON.

  Accuracies are 0 to 1. The standard deviation is that of a sample (division by n - 1), and None
  for a single seed. "others" has mean and deviation of each further set that the final runs score.
  "development" is empty for a grid of one rate, which is not tried.
  """
  store, stage = RunStore(sweep.folder), some.cells[0].stage
  tried = zip(stage.choice.options, store.trial_scores(stage), strict=False)
  tests = [Job(stage, seed) for seed in range(sweep.seeds)]
  by_set = [runs.accuracies(store.done(job)) for job in tests]
  first, *others = by_set[0]
  where = lambda job: str(store.run(job).folder)
  return dict(
    development=[
      dict(
        learning_rate=named(option),
        top1=top1,
        workdir=where(Job(stage.trials(option)[0], FIRST)),
      )
      for option, top1 in tried
    ],
    learning_rate=named(store.chosen(stage)),
    test=[
      dict(seed=job.seed, top1=scores[first], workdir=where(job))
      for job, scores in zip(tests, by_set, strict=True)
    ],
    **summary([scores[first] for scores in by_set]),
    others={name: summary([scores[name] for scores in by_set]) for name in others},
  )


def summary(scores: list[float]) -> dict:
  """Mean and standard deviation over the seeds."""
  std = statistics.stdev(scores) if len(scores) > 1 else None
  return dict(mean=statistics.fmean(scores), std=std)


def write(sweep: Sweep, result: dict):
  """Writes the results as a table and as a picture into the sweep's folder."""
  rows = [["part", "learning_rate", "seed", "top1", "workdir"]]
  for row in result["development"]:
    rows.append(["development", row["learning_rate"], 0, row["top1"], row["workdir"]])
  for row in result["test"]:
    rows.append(["test", result["learning_rate"], row["seed"], row["top1"], row["workdir"]])
  for name, one in result["others"].items():
    rows.append([f"{name}, mean", result["learning_rate"], "", one["mean"], ""])
    rows.append([f"{name}, standard deviation", result["learning_rate"], "", one["std"], ""])
  files.write_csv(sweep.folder / TABLE, rows)
  draw(sweep.folder / PICTURE, result)


def draw(path: pathlib.Path, result: dict):
  """Draws development accuracy against learning rate, and test accuracy at the chosen rate."""
  from matplotlib.figure import Figure  # slow to import, and only needed at the end

  figure = Figure(figsize=(6, 4), layout="constrained")
  axes = figure.subplots()
  development = {row["learning_rate"]: row["top1"] for row in result["development"]}
  rule, rate = development.pop(RULE, None), result["learning_rate"]
  axes.plot(development.keys(), development.values(), marker="o", label="development")
  if rule is not None:
    axes.axhline(rule, linestyle="--", label="development, BiT-HyperRule")
  axes.errorbar(
    min(development) if rate == RULE else rate,
    result["mean"],
    yerr=result["std"],
    fmt="s",
    capsize=4,
    label=f"test, {in_words(rate)}, {len(result['test'])} seeds: mean ± standard deviation",
  )
  axes.set(xscale="log", xlabel="learning rate", ylabel="top-1 accuracy")
  axes.set_xticks(list(development), [f"{rate:g}" for rate in development])
  axes.set_xticks([], minor=True)  # their labels would cover those of the rates
  axes.grid(alpha=0.3)
  charts.legend_above(axes)
  curves.save(figure, path)


def in_words(rate: float | str) -> str:
  """A candidate in words."""
  return "BiT-HyperRule" if rate == RULE else f"learning rate {rate}"


def table(result: dict) -> str:
  """The results as a table for the console."""
  rows = [["learning rate", "development top-1"]]
  for row in result["development"]:
    mark = "chosen" if row["learning_rate"] == result["learning_rate"] else ""
    rate = row["learning_rate"]
    rows.append([in_words(rate) if rate == RULE else f"{rate:g}", f"{row['top1']:.2%}", mark])
  rows = [*rows, []] if result["development"] else []
  rows += [["seed", "test top-1"]]
  rows += [[f"{row['seed']}", f"{row['top1']:.2%}"] for row in result["test"]]
  means = {"mean": result} | {f"mean, {name}": one for name, one in result["others"].items()}
  for name, one in means.items():
    spread = "" if one["std"] is None else f"± {one['std']:.2%}"
    rows.append([name, f"{one['mean']:.2%}", spread])
  return aligned(rows, left=(0, 2))
