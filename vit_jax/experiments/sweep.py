"""Chooses a learning rate, then measures the test accuracy (Section 4.1, Appendix B.1.1).

Each learning rate of a grid is used to train on a part of the training set; the run is scored on
the rest, the development part. The rate with the best development accuracy is then used to train
on the whole training set with several seeds, and only these runs are scored on the test set.
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
  """

  development: str
  final: str
  learning_rates: tuple[float, ...]
  seeds: int
  folder: pathlib.Path
  overrides: tuple[str, ...] = ()


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


def grid(sweep: Sweep) -> list[Run]:
  """The development runs, in the order of the learning rates; their seed is 0."""
  return [
    Run(
      name=f"development, learning rate {rate}",
      recipe=sweep.development,
      folder=sweep.folder / "development" / f"{rate}",
      overrides=(*sweep.overrides, f"--config.schedule.learning_rate={rate}", "--config.seed=0"),
    )
    for rate in sweep.learning_rates
  ]


def finals(sweep: Sweep, rate: float) -> list[Run]:
  """The runs on the whole training set with the chosen learning rate, by seed."""
  return [
    Run(
      name=f"test, learning rate {rate}, seed {seed}",
      recipe=sweep.final,
      folder=sweep.folder / "final" / f"{rate}-seed{seed}",
      overrides=(
        *sweep.overrides,
        f"--config.schedule.learning_rate={rate}",
        f"--config.seed={seed}",
        *ONCE,
      ),
    )
    for seed in range(sweep.seeds)
  ]


def choose(accuracy: dict[float, float]) -> float:
  """The learning rate with the best development accuracy; the smallest of equally good ones."""
  return min(accuracy, key=lambda rate: (-accuracy[rate], rate))


def chosen(sweep: Sweep) -> float:
  """The learning rate that the development runs choose.

  Raises:
    ConfigError: not all development runs are done.
  """
  accuracy = {rate: top1(run) for rate, run in zip(sweep.learning_rates, grid(sweep), strict=True)}
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
  known = {"development": len(sweep.learning_rates), "final": sweep.seeds}
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


def top1(run: Run) -> float | None:
  """The accuracy of a run, 0 to 1; None if the run is not done."""
  figures = runs.result(run.folder)
  return runs.accuracies(figures)[0] if figures else None


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
  for a single seed.
  """
  rate = chosen(sweep)
  tested = [
    dict(seed=seed, top1=top1(run), workdir=str(run.folder))
    for seed, run in enumerate(finals(sweep, rate))
  ]
  scores = [row["top1"] for row in tested]
  return dict(
    development=[
      dict(learning_rate=rate, top1=top1(run), workdir=str(run.folder))
      for rate, run in zip(sweep.learning_rates, grid(sweep), strict=True)
    ],
    learning_rate=rate,
    test=tested,
    mean=statistics.fmean(scores),
    std=statistics.stdev(scores) if len(scores) > 1 else None,
  )


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
  files.write_csv(sweep.folder / TABLE, rows)
  draw(sweep.folder / PICTURE, result)


def draw(path: pathlib.Path, result: dict):
  """Draws development accuracy against learning rate, and test accuracy at the chosen rate."""
  from matplotlib.figure import Figure  # slow to import, and only needed at the end

  figure = Figure(figsize=(6, 4), layout="constrained")
  axes = figure.subplots()
  points = sorted((row["learning_rate"], row["top1"]) for row in result["development"])
  axes.plot(*zip(*points, strict=True), marker="o", label="development")
  axes.errorbar(
    result["learning_rate"],
    result["mean"],
    yerr=result["std"],
    fmt="s",
    capsize=4,
    label=f"test, {len(result['test'])} seeds: mean ± standard deviation",
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
    rows.append([f"{row['learning_rate']:g}", f"{row['top1']:.2%}", mark])
  rows += [[], ["seed", "test top-1"]]
  rows += [[f"{row['seed']}", f"{row['top1']:.2%}"] for row in result["test"]]
  spread = "" if result["std"] is None else f"± {result['std']:.2%}"
  rows.append(["mean", f"{result['mean']:.2%}", spread])
  return aligned(rows, left=(0, 2))
