"""The VTAB-1k score: fine-tunes on each of 19 tasks, with the same settings (Tables 2 and 9).

The settings may be chosen on the 200 validation images of every task (Appendix B.1.1).
"""

import itertools
from collections.abc import Sequence

from vit_jax.config import ConfigError
from vit_jax.data import sources
from vit_jax.extras.experiments.studies import (
  Cell,
  Choice,
  Drawing,
  Paper,
  Score,
  Stage,
  Study,
  results,
)
from vit_jax.extras.experiments.sweep import numbers, rates, settings_of
from vit_jax.extras.experiments.vtab_finetuning import PARTS
from vit_jax.extras.sources.vtab_tasks import TASKS

# Settings that the benchmark itself sets, all but the first two only if it chooses some.
OWN = ("seed", "init_from", "schedule.learning_rate", "duration.steps")
TABLE_9 = "configs/studies/paper/table9.csv"
BIT = "BiT-L (R152x4, JFT-300M) has 76.29 ± 1.70% over all tasks, by Table 2"


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


def grid(learning_rates: str, steps: str) -> tuple[dict[str, float], ...]:
  """Candidates: every pair of a learning rate and a number of steps; () if both texts are empty.

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
  return tuple(
    {"schedule.learning_rate": rate, "duration.steps": length}
    for rate, length in itertools.product(rates(learning_rates), lengths)
  )


def study(
  model: str,
  source: str,
  *,
  tasks: Sequence[str] = tuple(TASKS),
  smoke: bool = False,
  candidates: Sequence[dict[str, float]] = (),
  seeds: int = 1,
  overrides: Sequence[str] = (),
  pretraining: str = "",
) -> Study:
  """The study that does a benchmark: a cell for each task, whose candidates are chosen together.

  They are tried on the validation images of every task, and the best mean is taken; these runs see
  no test image. Means over the groups and over all tasks are given if no task is left out.

  Args:
    model: one of the paper's names.
    source: weights to start from.
    tasks: names from `TASKS`, in their order.
    smoke: whether this is a smoke run of a few steps.
    candidates: what to choose from on the validation images; (): the paper's setting.
    seeds: number of runs that are scored on the test images of each task.
    overrides: --config.KEY=VALUE for every run.
    pretraining: of the model in Table 9 whose numbers are shown for comparison; "": none.

  Raises:
    ConfigError: an override sets what the benchmark itself sets, or Table 9 lacks the model.
  """
  instead = ", and give --source, --seeds, or --learning-rates and --steps"
  own = OWN if candidates else OWN[:2]
  settings = {"init_from": source, **settings_of(overrides, own, instead)}
  prefix = f"configs/vtab.py:{model}"
  choice = Choice(
    tuple(candidates) or ({},),
    settings,
    tuple(f"{prefix},{task},development" for task in tasks),
    Score("val200/top1"),
  )
  suffix = ""
  scored = "test"
  if smoke:
    suffix = ",smoke"
    scored = "val200"
  table = results.table_of(TABLE_9)
  rows = {row["task"].lower(): row for row in table}
  cells = []
  for task in tasks:
    label = rows[task]["task"]
    stage = Stage(f"{prefix},{task}{suffix}", settings, task, choice=choice)
    cells.append(Cell(label, stage, {"task": label, "group": rows[task]["group"]}))
  paper = None
  if pretraining:
    published = dict.fromkeys((row["model"], row["pretraining"]) for row in table)
    if (model, pretraining) not in published:
      raise ConfigError(
        f"Table 9 has no {model} pre-trained on {pretraining}, but "
        f"{', '.join(map(' on '.join, published))}; leave --pretraining out."
      )
    caption = f"Table 9, {model} pre-trained on {pretraining}; {BIT}"
    paper = Paper(TABLE_9, "accuracy", caption, {"model": model, "pretraining": pretraining})
  means = ()
  if len(tasks) == len(TASKS):
    means = (("task",), ("task", "group"))
  drawing = Drawing(x="task", panel="group", label="top-1")
  score = Score(f"{scored}/top1")
  return Study(tuple(cells), drawing, score, seeds, paper=paper, means=means)


def check_data(tasks: Sequence[str]):
  """Checks that the data of tasks can be read. Splits are the benchmark's, so are not checked.

  Raises:
    ConfigError: names all missing data, with the commands that prepare them.
  """
  missing = {}
  for task in tasks:
    try:
      for split in PARTS["all"]:
        sources.open_source(f"vtab:{task}", split=split)
    except sources.SourceError as error:
      missing.setdefault(str(error), []).append(task)
  if missing:
    lines = [f"  {', '.join(names)}: {reason}" for reason, names in missing.items()]
    raise ConfigError(
      f"The data of {sum(map(len, missing.values()))} of {len(tasks)} tasks cannot be read; "
      "prepare them, or choose others with --tasks:\n" + "\n".join(lines)
    )
