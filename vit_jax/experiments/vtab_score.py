"""The VTAB-1k score: fine-tunes on each of 19 tasks, with the same settings (Tables 2 and 9)."""

import dataclasses
import pathlib
import statistics

from vit_jax.config import ConfigError
from vit_jax.data import sources
from vit_jax.data.sources.vtab_tasks import TASKS
from vit_jax.experiments.studies import Cell, Choice, Drawing, Score, Stage, Study, conduct
from vit_jax.experiments.studies.conduct import Conduct
from vit_jax.experiments.studies.cost import Cost
from vit_jax.experiments.studies.jobs import Job
from vit_jax.experiments.studies.ledger import Ledger
from vit_jax.experiments.vtab_choice import Setting
from vit_jax.process.columns import aligned
from vit_jax.recipes.vtab_finetuning import PARTS
from vit_jax.storage import files

# Settings that the benchmark itself sets, all but the first only where it has settings of its own.
OWN = ("seed", "schedule.learning_rate", "schedule.warmup.steps", "duration.steps")

TABLE = "vtab.csv"

# Table 9 of the paper: top-1 accuracy in per cent, by model and pre-training data.
PAPER_MODELS = ("ViT-H/14 JFT", "ViT-L/16 JFT", "ViT-L/16 I21k")
BIT = "BiT-L (R152x4, JFT-300M), by Table 2: 76.29 ± 1.70 over all 19 tasks."
PAPER = {
  "natural": {
    "Caltech101": (95.3, 95.4, 90.8),
    "CIFAR-100": (85.5, 81.9, 84.1),
    "DTD": (75.2, 74.3, 74.1),
    "Flowers102": (99.7, 99.7, 99.3),
    "Pets": (97.2, 96.7, 92.7),
    "Sun397": (65.0, 63.5, 61.0),
    "SVHN": (88.9, 87.4, 80.9),
  },
  "specialized": {
    "Camelyon": (83.3, 83.6, 82.5),
    "EuroSAT": (96.7, 96.5, 95.6),
    "Resisc45": (91.4, 89.7, 85.2),
    "Retinopathy": (76.6, 77.1, 75.3),
  },
  "structured": {
    "Clevr-Count": (91.7, 86.4, 70.3),
    "Clevr-Dist": (63.8, 63.1, 56.1),
    "DMLab": (53.1, 49.7, 41.9),
    "dSpr-Loc": (79.4, 74.5, 74.7),
    "dSpr-Ori": (63.3, 60.5, 64.9),
    "KITTI-Dist": (84.5, 82.2, 79.9),
    "sNORB-Azim": (33.2, 36.2, 30.5),
    "sNORB-Elev": (51.2, 51.1, 41.7),
  },
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


def checked(benchmark: Benchmark, found: Conduct) -> dict[str, Cost]:
  """Checks that every run can begin; returns the costs of the runs.

  Raises:
    ConfigError: a setting is wrong, or as `check_data`.
  """
  costs = conduct.checked(found, False)
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
        sources.open_source(f"vtab:{task}", split=split, num_classes=0)
    except sources.SourceError as error:
      missing.setdefault(str(error), []).append(task)
  if missing:
    lines = [f"  {', '.join(names)}: {reason}" for reason, names in missing.items()]
    raise ConfigError(
      f"The data of {sum(map(len, missing.values()))} of {len(benchmark.tasks)} tasks cannot be "
      "read; prepare them, or choose others with --tasks:\n" + "\n".join(lines)
    )


def report(benchmark: Benchmark, some: Study) -> dict:
  """The result of a benchmark whose runs are all done, ready for JSON; accuracies in per cent.

  Figures are means over the seeds, with their standard deviation (of a sample; None for one seed).
  Each group has the mean of its tasks; the score is the mean of all 19. A mean is None if one of
  its tasks is left out. The figures of Table 9 are given beside ours.
  """
  ledger, stages = Ledger(benchmark.folder), [cell.stage for cell in some.cells]
  setting = chosen(benchmark, ledger, stages[0])
  top1 = [
    {stage.name: 100 * ledger.score(Job(stage, seed), some.score) for stage in stages}
    for seed in range(benchmark.seeds)
  ]
  rows, groups = [], []
  for group, paper in PAPER.items():
    rows += [
      dict(task=title, group=group, paper=dict(zip_models(scores)))
      | over_seeds([seed[title.lower()] for seed in top1])
      for title, scores in paper.items()
      if title.lower() in top1[0]
    ]
    groups.append(mean_row(group, paper, top1))
  everything = {title: scores for paper in PAPER.values() for title, scores in paper.items()}
  return dict(
    model=benchmark.model,
    source=benchmark.source,
    smoke=benchmark.smoke,
    setting=dataclasses.asdict(setting) if setting else None,
    validation=validation(benchmark, ledger, stages[0]),
    tasks=rows,
    groups=groups,
    score=mean_row("all 19", everything, top1),
  )


def zip_models(scores: tuple[float, ...]):
  """Pairs (model, score) of the paper's models."""
  return zip(PAPER_MODELS, scores, strict=True)


def chosen(benchmark: Benchmark, ledger: Ledger, stage: Stage) -> Setting | None:
  """The setting of the runs that are scored; None: the recipe's."""
  option = ledger.chosen(stage)
  return next((one for one in benchmark.settings if one.option() == option), None)


def validation(benchmark: Benchmark, ledger: Ledger, stage: Stage) -> list[dict]:
  """The mean accuracy of each setting on the validation images; [] if nothing was chosen."""
  tried = ledger.tried(stage)
  return [
    dataclasses.asdict(one) | dict(top1=100 * top1)
    for one, top1 in zip(benchmark.settings[: len(tried)], tried, strict=True)
  ]


def over_seeds(scores: list[float]) -> dict:
  """Mean and standard deviation of a figure of each seed."""
  std = statistics.stdev(scores) if len(scores) > 1 else None
  return dict(top1=statistics.fmean(scores), std=std)


def mean_row(name: str, paper: dict[str, tuple[float, ...]], top1: list[dict]) -> dict:
  """Means over the tasks of `paper`: ours, if no task is missing, and the paper's.

  Args:
    name: of the group.
    paper: the paper's figures by task.
    top1: our figures by task, for each seed.
  """
  names = [title.lower() for title in paper]
  ours = dict(top1=None, std=None)
  if all(task in top1[0] for task in names):
    ours = over_seeds([statistics.fmean(seed[task] for task in names) for seed in top1])
  columns = zip(*paper.values(), strict=True)
  means = tuple(round(statistics.fmean(column), 4) for column in columns)
  return dict(group=name, **ours, paper=dict(zip_models(means)))


def lines_of(result: dict) -> list[list]:
  """The report as rows: name, group, our figure, its deviation, the paper's figures."""
  return [
    [row.get("task", "mean"), row["group"], row["top1"], row["std"], *row["paper"].values()]
    for row in [*result["tasks"], *result["groups"], result["score"]]
  ]


def write(benchmark: Benchmark, result: dict):
  """Writes the results as a table into the benchmark's folder."""
  heading = ["task", "group", "top1", "std", *PAPER_MODELS]
  files.write_csv(benchmark.folder / TABLE, [heading, *lines_of(result)])


def table(result: dict) -> str:
  """The results as a table for the console, in per cent; deviations if there are several seeds."""
  heading = ["task", "group", "top-1", "±", *PAPER_MODELS]
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
