"""The VTAB-1k score: fine-tunes on each of 19 tasks, with the same settings (Tables 2 and 9).

The settings may be chosen on the 200 validation images of every task (Appendix B.1.1).
"""

import dataclasses
import itertools
import pathlib
import statistics

from vit_jax.config import ConfigError
from vit_jax.data import sources
from vit_jax.data.sources.vtab_tasks import TASKS
from vit_jax.experiments.studies import Cell, Choice, Drawing, Score, Stage, Study, results
from vit_jax.experiments.studies.jobs import Cost, Job
from vit_jax.experiments.studies.runner import StudyRunner
from vit_jax.experiments.studies.store import RunStore
from vit_jax.experiments.sweep import numbers, rates
from vit_jax.process.text import aligned
from vit_jax.recipes.finetuning import warmup
from vit_jax.recipes.vtab_finetuning import PARTS
from vit_jax.storage import files

# Settings that the benchmark itself sets, all but the first only where it has settings of its own.
OWN = ("seed", "schedule.learning_rate", "schedule.warmup.steps", "duration.steps")
TABLE = "vtab.csv"
TABLE_9 = pathlib.Path("configs/studies/paper/table9.csv")
PAPER_MODELS = {  # of Table 9, as the results call them
  ("ViT-H/14", "JFT-300M"): "ViT-H/14 JFT",
  ("ViT-L/16", "JFT-300M"): "ViT-L/16 JFT",
  ("ViT-L/16", "ImageNet-21k"): "ViT-L/16 I21k",
}
BIT = "BiT-L (R152x4, JFT-300M), by Table 2: 76.29 ± 1.70 over all 19 tasks."


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


@dataclasses.dataclass(frozen=True)
class Benchmark:
  """The description of a VTAB benchmark.

  Attributes:
    model: one of the paper's names.
    source: weights to start from.
    tasks: names from `TASKS`, in their order.
    smoke: whether this is a smoke run of a few steps.
    folder: holds the workdirs of all runs, and the results.
    settings: what to choose from on the validation images; (): the paper's setting.
    seeds: number of runs that are scored on the test images of each task.
    overrides: --config.KEY=VALUE for every run.
  """

  model: str
  source: str
  tasks: tuple[str, ...]
  smoke: bool
  folder: pathlib.Path
  settings: tuple[Setting, ...] = ()
  seeds: int = 1
  overrides: tuple[str, ...] = ()


def tasks(text: str) -> tuple[str, ...]:
  """Parses names of tasks, separated by commas, into the order of Table 9; none: all tasks.

  Raises:
    ConfigError: VTAB has no such task.
  """
  words = [word.strip().lower() for word in text.split(",") if word.strip()]
  for word in words:
    if word not in TASKS:
      raise ConfigError(f"VTAB has no task {word!r}; it has {', '.join(TASKS)}.")
  return tuple(name for name in TASKS if name in words or not words)


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
  lengths = numbers("--steps", steps, int, "500,2500")
  return tuple(Setting(*pair) for pair in itertools.product(rates(learning_rates), lengths))


def study(benchmark: Benchmark) -> Study:
  """The study that does a benchmark: a cell for each task, whose candidates are chosen together.

  They are tried on the validation images of every task, and the best mean is taken; these runs see
  no test image.

  Raises:
    ConfigError: an override sets what the benchmark itself sets.
  """
  given = dict(one.removeprefix("--config.").split("=", 1) for one in benchmark.overrides)
  for key in OWN[: None if benchmark.settings else 1]:
    if key in given:
      raise ConfigError(
        f"--config.{key} is what the benchmark sets itself; leave it out, and give "
        "--learning-rates and --steps, or --seeds."
      )
  if "init_from" in given:
    raise ConfigError("--config.init_from is what --source sets; leave it out.")
  given = {"init_from": benchmark.source} | given
  recipe = lambda task, part: f"configs/vtab.py:{benchmark.model},{task}{part}"
  choice = Choice(
    tuple(one.option() for one in benchmark.settings) or ({},),
    given,
    tuple(recipe(task, ",development") for task in benchmark.tasks),
    Score("val200/top1"),
  )
  part, scored = (",smoke", "val200") if benchmark.smoke else ("", "test")
  stages = [Stage(recipe(task, part), given, task, choice=choice) for task in benchmark.tasks]
  cells = tuple(Cell(stage.name, stage, {"task": stage.name}) for stage in stages)
  return Study(cells, Drawing(x="task"), Score(f"{scored}/top1"), benchmark.seeds)


def checked_costs(benchmark: Benchmark, runner: StudyRunner) -> dict[str, Cost]:
  """Checks that every run can begin; returns the costs of the runs.

  Raises:
    ConfigError: a setting is wrong, or as `check_data`.
  """
  costs = runner.checked_costs()
  check_data(benchmark)
  return costs


def check_data(benchmark: Benchmark):
  """Checks that the data of all tasks are there.

  Raises:
    ConfigError: names all missing data, with the commands that prepare them.
  """
  missing = {}
  for task in benchmark.tasks:
    try:
      for split in PARTS["all"]:
        sources.open_source(f"vtab:{task}", split=split)
    except sources.SourceError as error:
      missing.setdefault(str(error), []).append(task)
  if missing:
    lines = [f"  {', '.join(names)}: {reason}" for reason, names in missing.items()]
    raise ConfigError(
      f"The data of {sum(map(len, missing.values()))} of {len(benchmark.tasks)} tasks cannot be "
      "read; prepare them, or choose others with --tasks:\n" + "\n".join(lines)
    )


def paper() -> dict[str, dict[str, dict[str, float]]]:
  """Table 9: {group: {task: {model: top-1 accuracy in per cent}}}."""
  groups = {}
  for row in results.read(TABLE_9):
    name = PAPER_MODELS[row["model"], row["pretraining"]]
    top1 = round(100 * float(row["accuracy"]), 1)
    groups.setdefault(row["group"], {}).setdefault(row["task"], {})[name] = top1
  return groups


def report(benchmark: Benchmark, some: Study) -> dict:
  """The result of a benchmark whose runs are all done, ready for JSON; accuracies in per cent.

  Accuracies are means over the seeds, with their standard deviation (of a sample; None for one
  seed). Each group has the mean of its tasks; the score is the mean of all 19. A mean is None if
  one of its tasks is left out. Those of Table 9 are given beside ours.
  """
  store, stages = RunStore(benchmark.folder), [cell.stage for cell in some.cells]
  top1 = [
    {stage.name: 100 * store.score(Job(stage, seed), some.score) for stage in stages}
    for seed in range(benchmark.seeds)
  ]
  published = paper()
  everything = {task: scores for group in published.values() for task, scores in group.items()}
  option = store.chosen(stages[0])
  setting = next((one for one in benchmark.settings if one.option() == option), None)
  return dict(
    model=benchmark.model,
    source=benchmark.source,
    smoke=benchmark.smoke,
    setting=dataclasses.asdict(setting) if setting else None,
    validation=validation(benchmark, store.trial_scores(stages[0])),
    tasks=[
      dict(task=task, group=group, paper=scores) | over_seeds([seed[task.lower()] for seed in top1])
      for group, of_group in published.items()
      for task, scores in of_group.items()
      if task.lower() in top1[0]
    ],
    groups=[mean_row(group, of_group, top1) for group, of_group in published.items()],
    score=mean_row("all 19", everything, top1),
  )


def validation(benchmark: Benchmark, scores: list[float]) -> list[dict]:
  """The mean accuracy of each setting on the validation images; [] if nothing was chosen."""
  return [
    dataclasses.asdict(setting) | dict(top1=100 * score)
    for setting, score in zip(benchmark.settings[: len(scores)], scores, strict=True)
  ]


def over_seeds(scores: list[float]) -> dict:
  """Mean and standard deviation of the accuracies of each seed."""
  std = statistics.stdev(scores) if len(scores) > 1 else None
  return dict(top1=statistics.fmean(scores), std=std)


def mean_row(name: str, published: dict[str, dict[str, float]], top1: list[dict]) -> dict:
  """Means over the tasks of `published`: ours, if no task is missing, and the paper's.

  Args:
    name: of the group.
    published: the paper's accuracies by task.
    top1: our accuracies by task, for each seed.
  """
  names = [task.lower() for task in published]
  ours = dict(top1=None, std=None)
  if all(task in top1[0] for task in names):
    ours = over_seeds([statistics.fmean(seed[task] for task in names) for seed in top1])
  theirs = {
    model: round(statistics.fmean(scores[model] for scores in published.values()), 4)
    for model in PAPER_MODELS.values()
  }
  return dict(group=name, **ours, paper=theirs)


def lines_of(result: dict) -> list[list]:
  """The report as rows: name, group, our accuracy, its deviation, the paper's."""
  return [
    [row.get("task", "mean"), row["group"], row["top1"], row["std"], *row["paper"].values()]
    for row in [*result["tasks"], *result["groups"], result["score"]]
  ]


def write(benchmark: Benchmark, result: dict):
  """Writes the results as a table into the benchmark's folder."""
  heading = ["task", "group", "top1", "std", *PAPER_MODELS.values()]
  files.write_csv(benchmark.folder / TABLE, [heading, *lines_of(result)])


def table(result: dict) -> str:
  """The results as a table for the console, in per cent; deviations if there are several seeds."""
  heading = ["task", "group", "top-1", "±", *PAPER_MODELS.values()]
  cells = [heading] + [
    [name, group, *("" if value is None else f"{value:.1f}" for value in values)]
    for name, group, *values in lines_of(result)
  ]
  if all(row["std"] is None for row in result["tasks"]):
    cells = [[*row[:3], *row[4:]] for row in cells]
  notes = ["A smoke run: a few steps, scored on 200 held-back images; not a result."]
  notes = notes if result["smoke"] else []
  for row in result["validation"]:
    mark = " (chosen)" if {key: row[key] for key in result["setting"]} == result["setting"] else ""
    notes.append(
      f"Validation, learning rate {row['learning_rate']:g}, {row['steps']:,} steps: "
      f"{row['top1']:.1f}{mark}"
    )
  return "\n".join([*notes, aligned(cells, left=(0, 1)), BIT])
