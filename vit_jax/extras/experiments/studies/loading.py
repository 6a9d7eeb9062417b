"""Loads the file of a study, which has a function for each scale, and checks the study."""

import collections
import dataclasses
import json
import os
import re
from collections.abc import Callable, Iterator

from vit_jax.config import ConfigError, recipe_file, similar
from vit_jax.extras.experiments.studies.study import EPOCH, Cell, Score, Stage, Study
from vit_jax.process.text import shown

SCALES = ("small", "paper")
# Columns of results.csv and of curves.csv that are not factors of cells.
RESULT_COLUMNS = (
  "cell",
  "seed",
  "score",
  "paper",
  "chosen",
  "steps",
  "exaflops",
  "seconds",
  "pretraining_exaflops",
  "settings",
  "run",
  "commit",
  "code",
)
CURVE_COLUMNS = ("cell", "seed", "score", "paper", "step", EPOCH)
OF_THE_STUDY = ("seed", "init_from")  # settings that the study itself sets


def load(path: str, scale: str) -> Study:
  """The study that the function `scale` of a file returns.

  Raises:
    ConfigError: there is no such file or scale, it fails, or the study is wrong.
  """
  scales = functions(path)
  if scale not in scales:
    known = " and ".join(scales) or f"neither {' nor '.join(SCALES)}"
    raise ConfigError(f"{path} has no scale {scale!r}; it has {known}.")
  with recipe_file.blaming(path):
    study = scales[scale]()
    if not isinstance(study, Study):
      raise ConfigError(
        f"{path}: {scale}() returned {type(study).__name__}; it must return a Study."
      )
    check(study, path)
  return study


def functions(path: str) -> dict[str, Callable[[], Study]]:
  """The scales of a file, each with its function; NAME alone is a study of this project."""
  path = recipe_file.path_of_recipe(path, "studies")
  if not os.path.isfile(path):
    folder = os.path.dirname(path) or "."
    names = []
    if os.path.isdir(folder):
      names = sorted(os.listdir(folder))
    others = [os.path.join(folder, name) for name in names if name.endswith(".py")]
    nearest = ""
    if others:
      nearest = f"; nearest: {similar(path, others)}"
    raise ConfigError(f"There is no study {path}{nearest}.")
  names = recipe_file.run(path)
  return {scale: names[scale] for scale in SCALES if callable(names.get(scale))}


def check(study: Study, name: str):
  """Checks what can be checked without the recipes; messages begin with `name`.

  Raises:
    ConfigError: labels, factors, stages or values are wrong.
  """
  for mistake in mistakes(study):
    raise ConfigError(f"{name}: {mistake}")


def mistakes(study: Study) -> Iterator[str]:
  """The mistakes of a study, a sentence each."""
  if not study.cells:
    yield "The study has no cells; give Study(cells=(Cell(...), ...))."
  labels = collections.Counter(cell.label for cell in study.cells)
  for label, count in labels.items():
    if count > 1:
      yield f"{count} cells have the label {label!r}; give each its own."
  if not 1 <= study.seeds <= 1000:
    yield f"Study(seeds={shown(study.seeds)}) must be from 1 to 1,000."
  for cell in study.cells:
    yield from mistakes_of_cell(cell, list(study.cells[0].factors))
    yield from mistakes_of_score(study.score_of(cell))
    for stage in cell.stage.chain():
      where = f"the stage {shown(stage.name)} of the cell {cell.label!r}"
      yield from (f"{where} {mistake}" for mistake in mistakes_of_stage(stage))
  yield from mistakes_of_drawing(study)
  try:  # it goes to the table of results and to other processes
    json.dumps(dataclasses.asdict(study))
  except (TypeError, ValueError) as error:
    yield (
      f"The study holds more than text, numbers, tuples and dicts ({error}); write str(...), "
      "float(...) or dict(...) around what is something else."
    )


def mistakes_of_cell(cell: Cell, factors: list[str]) -> Iterator[str]:
  """All cells have the same factors, whose names are not taken."""
  if re.fullmatch(r"\d+:\d+", cell.label) or not cell.label:
    yield f"{cell.label!r} cannot be a label; --only=0:0 names a single run."
  if list(cell.factors) != factors:
    yield (
      f"The cell {cell.label!r} has the factors {', '.join(cell.factors)}, and the first one has "
      f"{', '.join(factors)}; give all cells the same, in one order."
    )
  for factor in cell.factors:
    if not factor or factor in (*RESULT_COLUMNS, *CURVE_COLUMNS) or "/" in factor:
      yield f"The factor {factor!r} cannot be a column of the results; rename it."


def mistakes_of_stage(stage: Stage) -> Iterator[str]:
  """Names become folders; the study alone sets what `OF_THE_STUDY` lists."""
  if not re.fullmatch(r"[\w+-][\w.+-]{0,79}", stage.name):
    yield "needs a name of up to 80 letters, digits, dots, dashes and underscores."
  for settings in (stage.settings, stage.choice.held_out, *stage.choice.options):
    for key in OF_THE_STUDY:
      if key in settings:
        yield f"sets {key}, which the study itself sets; leave it out."
  yield from mistakes_of_mode(stage)
  yield from mistakes_of_choice(stage)


def mistakes_of_mode(stage: Stage) -> Iterator[str]:
  """A stage that evaluates needs weights, leaves none, and has no choice."""
  if stage.mode not in ("train", "evaluate"):
    yield f"has mode={stage.mode!r}, which is none of train, evaluate."
  if stage.mode == "train" and not stage.average:
    yield "trains, so that average=False has no effect; give it to a stage with mode='evaluate'."
  if stage.mode == "evaluate" and (stage.after is None or stage.has_trials()):
    yield "evaluates the weights of another one; give that one as `after`, and no choice."
  if stage.after and stage.after.mode == "evaluate":
    yield (
      f"is after {stage.after.name!r}, which trains nothing; let it be after a stage that trains."
    )


def mistakes_of_choice(stage: Stage) -> Iterator[str]:
  """Candidates differ, and are tried on held-out data, whose settings come last."""
  options = list(stage.choice.options)
  held_out = stage.choice.held_out
  if not options:
    yield "chooses among no options; give some."
  if stage.has_trials() and not held_out and not stage.choice.recipes:
    yield (
      "chooses settings without held-out data; give Choice(held_out={...}) with settings that "
      "score a part of the training set."
    )
  for number, option in enumerate(options):
    if option in options[:number]:
      yield f"has the candidate {shown(dict(option))} twice; leave one out."
    for key in option:
      if key in held_out:
        yield (
          f"holds {key} as {shown(held_out[key])} in all trials, so its candidate "
          f"{shown(option[key])} would not be tried; leave {key} out of held_out or the candidates."
        )
  yield from mistakes_of_score(stage.choice.score)


def mistakes_of_score(score: Score) -> Iterator[str]:
  """A score is taken in one of two ways, and is better in one of two directions."""
  known = {"take": ("last", "best"), "better": ("larger", "smaller")}
  for field, values in known.items():
    if getattr(score, field) not in values:
      yield f"Score({field}={getattr(score, field)!r}) is none of {', '.join(values)}."


def mistakes_of_drawing(study: Study) -> Iterator[str]:
  """A drawing uses columns of the results, or the epochs of runs that train."""
  drawing = study.drawing
  factors = list(study.cells[0].factors)
  along_epochs = drawing.x == EPOCH
  for cell in study.cells:
    if along_epochs and cell.stage.mode == "evaluate":
      yield f"The drawing is along epochs, but the cell {cell.label!r} trains nothing."
  if not drawing.along():
    yield "Drawing(x=()) draws nothing; name a factor."
  columns = CURVE_COLUMNS if along_epochs else RESULT_COLUMNS
  drawn = [*drawing.along(), *filter(None, [drawing.by, drawing.panel])]
  yield from _unknown(drawn, [*factors, *columns])
  yield from _unknown([factor for over in study.means for factor in over], factors)


def _unknown(columns: list[str], known: list[str]) -> Iterator[str]:
  for column in columns:
    if column not in known:
      yield f"{column!r} is no factor of the cells; choose one of {', '.join(known)}."
