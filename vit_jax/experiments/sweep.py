"""Chooses a learning rate, then measures the test accuracy (Section 4.1, Appendix B.1.1).

Each learning rate of a grid is used to train on a part of the training set; the run is scored on
the rest, the development part. The rate with the best development accuracy is then used to train
on the whole training set with several seeds, and only these runs are scored on the test set. A rule
that needs no search, such as BiT's, can be tried beside the rates.
"""

import dataclasses
import math
import pathlib
import statistics

from vit_jax import recipes
from vit_jax.config import ConfigError
from vit_jax.experiments import holdout, runs
from vit_jax.experiments.runs import Run
from vit_jax.plots import curves
from vit_jax.process.columns import aligned
from vit_jax.storage import files

DESCRIPTION, TABLE, PICTURE = "sweep.json", "sweep.csv", "sweep.png"
RULE = "hyperrule"  # stands in the place of a learning rate
OWN = ("seed", "schedule.learning_rate")  # settings that the sweep itself sets
# The test set is scored once, after the last step.
ONCE = tuple(f"--config.evaluate_every.{unit}=0" for unit in ("steps", "epochs", "examples"))


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
    rule: two more recipes like `development` and `final`, tried with their own learning rate; ():
      none.
  """

  development: str
  final: str
  learning_rates: tuple[float, ...]
  seeds: int
  folder: pathlib.Path
  overrides: tuple[str, ...] = ()
  rule: tuple[str, ...] = ()


def rates(text: str) -> tuple[float, ...]:
  """Parses a grid of learning rates: numbers separated by commas.

  Raises:
    ConfigError: the grid is empty, an entry is not a positive number, or a number is repeated.
  """
  words = [word.strip() for word in text.split(",") if word.strip()]
  if not words:
    raise ConfigError(
      f"The grid of learning rates, {text!r}, is empty; give one, such as 0.003,0.01."
    )
  for word in words:
    try:
      good = 0 < float(word) < math.inf
    except ValueError:
      good = False
    if not good:
      raise ConfigError(f"The learning rate {word!r} is no number above 0; give such as 0.003.")
  found = tuple(map(float, words))
  for rate in found:
    if found.count(rate) > 1:
      raise ConfigError(f"The learning rate {rate} stands in the grid twice; once is enough.")
  return found


def choices(sweep: Sweep) -> list[float | str]:
  """What is chosen from: the learning rates, and `RULE` if there is one."""
  return [*sweep.learning_rates, *([RULE] if sweep.rule else [])]


def named(rate: float | str) -> str:
  """A choice in words."""
  return "BiT-HyperRule" if rate == RULE else f"learning rate {rate}"


def of_rate(sweep: Sweep, rate: float | str) -> tuple[str, ...]:
  """The overrides of the runs with this choice."""
  own = () if rate == RULE else (f"--config.schedule.learning_rate={rate}",)
  return (*sweep.overrides, *own)


def grid(sweep: Sweep) -> list[Run]:
  """The development runs, in the order of `choices`; their seed is 0."""
  return [
    Run(
      name=f"development, {named(rate)}",
      recipe=sweep.rule[0] if rate == RULE else sweep.development,
      folder=sweep.folder / "development" / f"{rate}",
      overrides=(*of_rate(sweep, rate), "--config.seed=0"),
    )
    for rate in choices(sweep)
  ]


def finals(sweep: Sweep, rate: float | str) -> list[Run]:
  """The runs on the whole training set with what was chosen, by seed."""
  return [
    Run(
      name=f"test, {named(rate)}, seed {seed}",
      recipe=sweep.rule[1] if rate == RULE else sweep.final,
      folder=sweep.folder / "final" / f"{rate}-seed{seed}",
      overrides=(*of_rate(sweep, rate), f"--config.seed={seed}", *ONCE),
    )
    for seed in range(sweep.seeds)
  ]


def choose(accuracy: dict[float | str, float]) -> float | str:
  """The best on the development part; of equally good ones the smallest rate, the rule last."""
  order = lambda rate: math.inf if rate == RULE else rate
  return min(accuracy, key=lambda rate: (-accuracy[rate], order(rate)))


def chosen(sweep: Sweep) -> float | str:
  """The choice of `choices` that the development runs make.

  Raises:
    ConfigError: not all development runs are done.
  """
  accuracy = {rate: runs.top1(run) for rate, run in zip(choices(sweep), grid(sweep), strict=True)}
  missing = [f"{rate}" for rate, value in accuracy.items() if value is None]
  if missing:
    raise ConfigError(
      f"The development runs with the learning rates {', '.join(missing)} are not done, so no "
      "learning rate can be chosen yet; run them first."
    )
  return choose(accuracy)


def picked(sweep: Sweep, only: str) -> Run:
  """The run that --only names.

  Raises:
    ConfigError: there is no such run, or its learning rate is not chosen yet.
  """
  part, _, number = only.partition(":")
  known = {"development": len(choices(sweep)), "final": sweep.seeds}
  if part not in known or not number.isdecimal() or int(number) >= known[part]:
    raise ConfigError(
      f"--only={only} names no run; there are "
      + " and ".join(f"{name}:0 to {name}:{count - 1}" for name, count in known.items())
      + "."
    )
  if part == "development":
    return grid(sweep)[int(number)]
  return finals(sweep, chosen(sweep))[int(number)]


def startable(sweep: Sweep) -> list[Run]:
  """The runs that are not done and can start now."""
  tried = [run for run in grid(sweep) if not runs.result(run.folder)]
  if tried:
    return tried
  return [run for run in finals(sweep, chosen(sweep)) if not runs.result(run.folder)]


def search(sweep: Sweep, *, execute) -> dict:
  """Does all runs that are not done yet, and returns `report`.

  Args:
    sweep: the sweep.
    execute: runs a list of runs, as `runs.execute`.

  Raises:
    ConfigError, RunError: as `execute`.
  """
  execute(grid(sweep))
  execute(finals(sweep, chosen(sweep)))
  return report(sweep)


def report(sweep: Sweep) -> dict:
  """The result of a sweep whose runs are all done, ready for JSON.

  Accuracies are 0 to 1. The standard deviation is that of a sample (division by n - 1), and None
  for a single seed. "others" has mean and deviation of each further set that the final runs score.
  """
  rate = chosen(sweep)
  tested = finals(sweep, rate)
  by_set = [runs.accuracies(runs.result(run.folder)) for run in tested]
  first, *others = by_set[0]
  return dict(
    development=[
      dict(learning_rate=rate, top1=runs.top1(run), workdir=str(run.folder))
      for rate, run in zip(choices(sweep), grid(sweep), strict=True)
    ],
    learning_rate=rate,
    test=[
      dict(seed=seed, top1=scores[first], workdir=str(run.folder))
      for seed, (run, scores) in enumerate(zip(tested, by_set, strict=True))
    ],
    **summary([scores[first] for scores in by_set]),
    others={name: summary([scores[name] for scores in by_set]) for name in others},
  )


def summary(scores: list[float]) -> dict:
  """Mean and standard deviation over the seeds."""
  std = statistics.stdev(scores) if len(scores) > 1 else None
  return dict(mean=statistics.fmean(scores), std=std)


def check(sweep: Sweep):
  """Checks a sweep before anything is run.

  Raises:
    ConfigError: an override sets what the sweep itself sets; or as `holdout.check` and
      `check_sampling`.
  """
  for override in sweep.overrides:
    key = override.partition("=")[0].removeprefix("--config.")
    if key in OWN:
      raise ConfigError(
        f"--config.{key} is what a sweep sets itself; leave it out, and give --learning-rates or "
        "--seeds."
      )
  holdout.check(sweep.development, sweep.final, sweep.overrides)
  if sweep.rule:
    holdout.check(*sweep.rule, sweep.overrides)
  check_sampling(sweep)


def check_sampling(sweep: Sweep):
  """Checks that runs that are done drew parts of folders in the same way as the next runs will.

  Imports JAX, but touches no device.

  Raises:
    ConfigError: the runs that are done are of a release before 0.2.0.
  """
  from vit_jax.training import resumed

  config = recipes.resolve(sweep.development, sweep.overrides)
  sampling = resumed.completed(config.data, *(run.folder for run in grid(sweep))).sampling
  if sampling != resumed.completed(config.data).sampling:
    raise ConfigError(
      f"{sweep.folder} holds runs with config.data.sampling={sampling}, as before release 0.2.0, "
      "but new runs would draw their images differently; give another --workdir."
    )


def claim(sweep: Sweep):
  """Makes the folder, and checks that it holds only runs of this sweep.

  Learning rates and seeds may be added to a sweep; recipes and overrides must stay the same.

  Raises:
    ConfigError: the folder holds another sweep, or cannot be written to.
  """
  runs.claim(
    sweep.folder / DESCRIPTION,
    dict(development=sweep.development, final=sweep.final, overrides=sorted(sweep.overrides)),
  )


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
  rule = development.pop(RULE, None)
  axes.plot(*zip(*sorted(development.items()), strict=True), marker="o", label="development")
  if rule is not None:
    axes.axhline(rule, linestyle="--", label="development, BiT-HyperRule")
  rate = result["learning_rate"]
  axes.errorbar(
    min(development) if rate == RULE else rate,
    result["mean"],
    yerr=result["std"],
    fmt="s",
    capsize=4,
    label=f"test, {named(rate)}, {len(result['test'])} seeds: mean ± standard deviation",
  )
  axes.set(xscale="log", xlabel="learning rate", ylabel="top-1 accuracy")
  axes.grid(alpha=0.3)
  axes.legend()
  curves.save(figure, path)


def table(result: dict) -> str:
  """The results as a table for the console."""
  rows = [["learning rate", "development top-1"]]
  for row in result["development"]:
    mark = "chosen" if row["learning_rate"] == result["learning_rate"] else ""
    rate = row["learning_rate"]
    rows.append([named(rate) if rate == RULE else f"{rate:g}", f"{row['top1']:.2%}", mark])
  rows += [[], ["seed", "test top-1"]]
  rows += [[f"{row['seed']}", f"{row['top1']:.2%}"] for row in result["test"]]
  means = {"mean": result} | {f"mean, {name}": one for name, one in result["others"].items()}
  for name, one in means.items():
    spread = "" if one["std"] is None else f"± {one['std']:.2%}"
    rows.append([name, f"{one['mean']:.2%}", spread])
  return aligned(rows, left=(0, 2))
