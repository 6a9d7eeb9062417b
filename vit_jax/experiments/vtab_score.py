"""The VTAB-1k score: fine-tunes on each of 19 tasks, with the same settings (Tables 2 and 9)."""

import dataclasses
import pathlib
import statistics

from vit_jax.config import ConfigError
from vit_jax.data import sources
from vit_jax.data.sources.vtab_tasks import TASKS
from vit_jax.experiments import runs, vtab_choice
from vit_jax.experiments.runs import Run
from vit_jax.experiments.vtab_choice import Setting
from vit_jax.process.columns import aligned
from vit_jax.recipes.vtab_finetuning import PARTS
from vit_jax.storage import files

# Settings that the benchmark itself sets, all but the first only where it has settings of its own.
OWN = ("seed", "schedule.learning_rate", "schedule.warmup.steps", "duration.steps")

DESCRIPTION, TABLE = "vtab.json", "vtab.csv"

# Table 9 of the paper: top-1 accuracy in per cent, by model and pre-training data.
PAPER_MODELS = ("ViT-H/14 JFT", "ViT-L/16 JFT", "ViT-L/16 I21k")
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


def development(benchmark: Benchmark, setting: Setting) -> list[Run]:
  """A run for each task that is scored on its validation images, and sees no test image."""
  return alike(benchmark, ",development", setting.name(), 0, setting.overrides())


def finals(benchmark: Benchmark, setting: Setting | None) -> list[list[Run]]:
  """For each seed a run for each task that is scored on its test images.

  Args:
    benchmark: the benchmark.
    setting: what was chosen; None: the recipe's.
  """
  name, flags = (f"{setting.name()}-", setting.overrides()) if setting else ("", ())
  part = ",smoke" if benchmark.smoke else ""
  return [
    alike(benchmark, part, f"{name}seed{seed}", seed, flags) for seed in range(benchmark.seeds)
  ]


def alike(benchmark: Benchmark, part: str, name: str, seed: int, flags: tuple) -> list[Run]:
  """A run for each task, all alike."""
  kind = part.removeprefix(",") or "final"
  own = (*flags, f"--config.seed={seed}")
  return [
    Run(
      name=f"{kind} {name}, task {task}",
      recipe=f"configs/vtab.py:{benchmark.model},{task}{part}",
      folder=benchmark.folder / kind / name / task,
      overrides=(f"--config.init_from={benchmark.source}", *benchmark.overrides, *own),
    )
    for task in benchmark.tasks
  ]


def chosen(benchmark: Benchmark) -> Setting | None:
  """The setting that the development runs choose; None if there is nothing to choose from.

  Raises:
    ConfigError: not all of them are done.
  """
  if len(benchmark.settings) < 2:
    return next(iter(benchmark.settings), None)
  return vtab_choice.choose({one: development(benchmark, one) for one in benchmark.settings})


def search(benchmark: Benchmark, *, execute) -> dict:
  """Does all runs that are not done yet, and returns `report`.

  Args:
    benchmark: the benchmark.
    execute: runs a list of runs, as `runs.execute`.

  Raises:
    ConfigError, RunError: as `execute`.
  """
  if len(benchmark.settings) > 1:
    execute([run for one in benchmark.settings for run in development(benchmark, one)])
  execute([run for some in finals(benchmark, chosen(benchmark)) for run in some])
  return report(benchmark)


def check(benchmark: Benchmark):
  """Checks that every run can begin, before any run begins.

  Raises:
    ConfigError: a setting is wrong, or data are missing; names all missing data, with the commands
      that prepare them.
  """
  for key in OWN[: None if benchmark.settings else 1]:
    if any(flag.startswith(f"--config.{key}=") for flag in benchmark.overrides):
      raise ConfigError(
        f"--config.{key} is what the benchmark sets itself; leave it out, and give "
        "--learning-rates and --steps, or --seeds."
      )
  first = benchmark.settings[0] if benchmark.settings else None
  for run in finals(dataclasses.replace(benchmark, seeds=1), first)[0]:
    runs.accept(run.recipe, run.overrides)
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


def claim(benchmark: Benchmark):
  """Makes the folder, and checks that it holds only runs of this benchmark; see runs.claim.

  Raises:
    ConfigError: the folder holds other runs, or cannot be written to.
  """
  fields = ("model", "source", "smoke")
  description = {key: getattr(benchmark, key) for key in fields}
  runs.claim(
    benchmark.folder / DESCRIPTION, description | dict(overrides=sorted(benchmark.overrides))
  )


def report(benchmark: Benchmark) -> dict:
  """The result of a benchmark whose runs are all done, ready for JSON; accuracies in per cent.

  Figures are means over the seeds, with their standard deviation (of a sample; None for one seed).
  Each group has the mean of its tasks; the score is the mean of all 19. A mean is None if one of
  its tasks is left out. The figures of Table 9 are given beside ours.
  """
  setting = chosen(benchmark)
  top1 = [
    {run.folder.name: 100 * runs.top1(run) for run in some} for some in finals(benchmark, setting)
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
    validation=validation(benchmark),
    tasks=rows,
    groups=groups,
    score=mean_row("all 19", everything, top1),
  )


def zip_models(scores: tuple[float, ...]):
  """Pairs (model, score) of the paper's models."""
  return zip(PAPER_MODELS, scores, strict=True)


def validation(benchmark: Benchmark) -> list[dict]:
  """The mean accuracy of each setting on the validation images; [] if nothing was chosen."""
  if len(benchmark.settings) < 2:
    return []
  return [
    dataclasses.asdict(one) | dict(top1=100 * vtab_choice.mean(development(benchmark, one)))
    for one in benchmark.settings
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
  return "\n".join([*notes, aligned(cells, left=(0, 1))])
