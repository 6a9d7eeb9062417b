"""The parts of a study; configs/studies/NAME.py builds one from them. Imports no JAX."""

import collections
import contextlib
import dataclasses
import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from vit_jax.config import ConfigError
from vit_jax.experiments.studies import kinds
from vit_jax.process.text import shown

# Columns of results.csv that are not factors of cells.
OWN_COLUMNS = (
  *("cell", "seed", "score", "paper", "chosen", "steps", "exaflops", "seconds"),
  *("pretraining_exaflops", "settings", "run"),
)
EPOCH = "epoch"  # a column of curves.csv, as is the next one
CURVE_COLUMNS = ("step", EPOCH)
OF_THE_STUDY = ("seed", "init_from")  # settings that the study itself sets


@dataclasses.dataclass(frozen=True)
class Score:
  """How a run is scored.

  Attributes:
    metric: a figure of any evaluation, such as "test/top1" or "imagenet/5shot".
    take: "last", the figure after the last step, or "best", the best figure of all evaluations.
    better: "larger" or "smaller"; checked against the figure's own rule.
  """

  metric: str = "test/top1"
  take: str = "last"
  better: str = "larger"


@dataclasses.dataclass(frozen=True)
class Choice:
  """Settings that are chosen on held-out data, with the first seed.

  Attributes:
    options: the candidates, each {setting: value}. The first of equally good ones is chosen. One
      candidate is taken without a trial.
    held_out: settings of the trials that hold back a part of the training data and score it, such
      as {"data.train.split": "train[:90%]", "data.evaluate.test.split": "train[90%:]"}.
    recipes: recipes of the trials, in place of the stage's own recipe and settings. A candidate is
      tried with each, and its score is the mean over them. (): the stage's own.
    score: how a trial is scored.
  """

  options: tuple[Mapping[str, Any], ...] = ({},)
  held_out: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  recipes: tuple[str, ...] = ()
  score: Score = Score()


@dataclasses.dataclass(frozen=True)
class Stage:
  """One run of a cell, for every seed. Cells that have an equal stage share its runs.

  Attributes:
    recipe: configs/NAME.py or configs/NAME.py:ARG.
    settings: {setting: value}, such as {"model.depth": 4}.
    name: begins the names of its folders.
    after: the stage whose weights it starts from, those of the same seed; None: it starts anew.
    choice: settings that are chosen on held-out data.
    mode: "train", or "evaluate": nothing is trained, and the weights of `after` are scored again
      with these settings.
    average: False, with mode="evaluate": the parameters themselves are scored, not their average.
  """

  recipe: str
  settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  name: str = "training"
  after: "Stage | None" = None
  choice: Choice = Choice()
  mode: str = "train"
  average: bool = True

  def chain(self) -> list["Stage"]:
    """This stage and all before it, the first one first."""
    return [*(self.after.chain() if self.after else []), self]

  def has_trials(self) -> bool:
    """Whether settings are chosen."""
    return len(self.choice.options) > 1

  def trials(self, option: Mapping[str, Any]) -> list["Stage"]:
    """The runs that try a candidate."""
    held_out = self.choice.held_out
    if not self.choice.recipes:
      settings = {**self.settings, **option, **held_out}
      return [Stage(self.recipe, settings, self.name, self.after)]
    settings = {**option, **held_out}
    return [
      Stage(recipe, settings, f"trial_{file_name(recipe)}", self.after)
      for recipe in self.choice.recipes
    ]


def file_name(recipe: str) -> str:
  """The name of a recipe, NAME.py:ARG, as a part of the name of a folder."""
  path, _, argument = recipe.partition(":")
  return re.sub(r"[^\w.+-]+", "_", f"{pathlib.PurePath(path).stem}-{argument}")[:70]


@dataclasses.dataclass(frozen=True)
class Cell:
  """One thing that is compared.

  Attributes:
    label: its name in tables and in --only.
    stage: its last run, which is scored.
    factors: what varies, {"head": "mean", "learning_rate": 1e-3}: columns of the results.
  """

  label: str
  stage: Stage
  factors: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Drawing:
  """How the results are drawn: the score against `x`, one curve for each value of `by`.

  Attributes:
    x: a factor, or another column of results.csv such as "pretraining_exaflops". Values that are
      not all numbers are placed side by side. Several columns have a panel each. "epoch" draws the
      score at every evaluation of the last run of each cell.
    by: a factor; empty: one curve, or with "epoch" one for each cell. Points of a curve that lie
      above each other are not joined.
    panel: a factor; each of its values has a panel of its own. Empty: one panel.
    log: whether the axis of `x` is logarithmic. It is linear if a value is not above 0.
    label: of the axis of the score.
  """

  x: str | tuple[str, ...]
  by: str = ""
  panel: str = ""
  log: bool = False
  label: str = "score"

  def along(self) -> tuple[str, ...]:
    """The columns of `x`."""
    return (self.x,) if isinstance(self.x, str) else self.x


@dataclasses.dataclass(frozen=True)
class Paper:
  """The paper's own figures.

  Attributes:
    file: a CSV file. A row belongs to the cell whose factors it has.
    column: holds the score.
    caption: what was measured.
  """

  file: str
  column: str
  caption: str


@dataclasses.dataclass(frozen=True)
class Study:
  """Cells that are scored in the same way, with several seeds.

  Attributes:
    cells: what is compared.
    drawing: how the results are drawn.
    score: how the last stage of a cell is scored.
    seeds: the seeds are 0, 1, ...
    paper: the paper's figures; None: it has none.
    means: factors to take means over, a table for each; ("task", "group") is over both.
  """

  cells: tuple[Cell, ...]
  drawing: Drawing
  score: Score = Score()
  seeds: int = 3
  paper: Paper | None = None
  means: tuple[tuple[str, ...], ...] = ()


@contextlib.contextmanager
def naming(cell: str) -> Iterator[None]:
  """Names the cell in an error about its settings or data."""
  try:
    yield
  except ConfigError as error:
    raise ConfigError(f"The cell {cell!r}: {error}") from error


def check(study: Study, name: str):
  """Checks what can be checked without the recipes; messages begin with `name`.

  Raises:
    ConfigError: types, labels, factors or stages are wrong.
  """
  kinds.check(study, name)
  if not study.cells:
    raise ConfigError(f"{name} has no cells; give Study(cells=(Cell(...), ...)).")
  labels = collections.Counter(cell.label for cell in study.cells)
  for label, count in labels.items():
    if count > 1:
      raise ConfigError(f"{name} has {count} cells with the label {label!r}; give each its own.")
  if not 1 <= study.seeds <= 1000:
    raise ConfigError(f"{name}: Study(seeds={shown(study.seeds)}) must be from 1 to 1,000.")
  for cell in study.cells:
    check_factors(cell, study.cells[0], name)
    check_stages(cell, name)
  check_score(study.score, name)
  check_drawing(study, name)
  check_means(study, name)


def check_drawing(study: Study, name: str):
  """What is drawn is a column of the results, or the epochs of runs that train."""
  own, drawing = OWN_COLUMNS, study.drawing
  if drawing.x == EPOCH:
    own = ("cell", "seed", "score", "paper", *CURVE_COLUMNS)
    for cell in study.cells:
      if cell.stage.mode == "evaluate":
        raise ConfigError(f"{name} draws epochs, but the cell {cell.label!r} trains nothing.")
  if not drawing.along():
    raise ConfigError(f"{name}: Drawing(x=()) draws nothing; name a factor.")
  for column in [*drawing.along(), *filter(None, [drawing.by, drawing.panel])]:
    known = [*study.cells[0].factors, *own]
    if column not in known:
      raise ConfigError(
        f"{name} draws {column!r}, which is no factor of its cells; choose one of "
        f"{', '.join(known)}."
      )


def check_means(study: Study, name: str):
  """Means are over factors."""
  known = list(study.cells[0].factors)
  for over in study.means:
    for factor in over:
      if factor not in known:
        raise ConfigError(
          f"{name} takes means over {factor!r}, which is no factor of its cells; choose one of "
          f"{', '.join(known)}."
        )


def check_factors(cell: Cell, first: Cell, name: str):
  """All cells must have the same factors, which have names of their own."""
  if list(cell.factors) != list(first.factors):
    raise ConfigError(
      f"{name}: the cell {cell.label!r} has the factors {', '.join(cell.factors)}, and "
      f"{first.label!r} has {', '.join(first.factors)}; give all cells the same, in one order."
    )
  for factor in cell.factors:
    if not factor:
      raise ConfigError(f"{name}: a factor of the cell {cell.label!r} has no name; give it one.")
    if factor in (*OWN_COLUMNS, *CURVE_COLUMNS) or "/" in factor:
      raise ConfigError(f"{name}: {factor!r} is a column of the results; rename this factor.")


def check_stages(cell: Cell, name: str):
  """Names of stages become folders, and the study alone sets what `OF_THE_STUDY` lists."""
  if re.fullmatch(r"\d+:\d+", cell.label) or not cell.label:
    raise ConfigError(f"{name}: {cell.label!r} cannot be a label; --only=0:0 names a single run.")
  for stage in cell.stage.chain():
    if not re.fullmatch(r"[\w+-][\w.+-]{0,79}", stage.name):
      raise ConfigError(
        f"{name}: the stage {shown(stage.name)} of the cell {cell.label!r} needs a name of up to "
        "80 letters, digits, dots, dashes and underscores."
      )
    check_mode(stage, name)
    if not stage.choice.options:
      raise ConfigError(f"{name}: the stage {stage.name!r} chooses among no options; give some.")
    if stage.has_trials() and not stage.choice.held_out and not stage.choice.recipes:
      raise ConfigError(
        f"{name}: the stage {stage.name!r} of the cell {cell.label!r} chooses settings without "
        "held-out data; give Choice(held_out={...}) with settings that score a part of the "
        "training set."
      )
    check_candidates(stage, f"{name}: the stage {stage.name!r} of the cell {cell.label!r}")
    check_score(stage.choice.score, name)
    for settings in (stage.settings, stage.choice.held_out, *stage.choice.options):
      kinds.check_settings(settings, f"{name}: the stage {stage.name!r} of {cell.label!r}")
      for key in OF_THE_STUDY:
        if key in settings:
          raise ConfigError(
            f"{name}: the stage {stage.name!r} sets {key}, which the study itself sets; leave it "
            "out."
          )


def check_candidates(stage: Stage, name: str):
  """Trials must differ as the candidates do; the held-out settings come last."""
  options, held_out = list(stage.choice.options), stage.choice.held_out
  for number, option in enumerate(options):
    if option in options[:number]:
      raise ConfigError(f"{name} has the candidate {shown(dict(option))} twice; leave one out.")
    for key in option:
      if key in held_out:
        raise ConfigError(
          f"{name} holds {key} as {shown(held_out[key])} in all trials, so its candidate "
          f"{shown(option[key])} would not be tried; leave {key} out of held_out or the candidates."
        )


def check_mode(stage: Stage, name: str):
  """A stage that evaluates needs weights, and leaves none; what it is for is not chosen."""
  if stage.mode not in ("train", "evaluate"):
    raise ConfigError(f"{name}: Stage(mode={stage.mode!r}) is none of train, evaluate.")
  if stage.mode == "train" and not stage.average:
    raise ConfigError(
      f"{name}: the stage {stage.name!r} trains, so that average=False has no effect; give it to a "
      "stage with mode='evaluate'."
    )
  if stage.mode == "evaluate" and (stage.after is None or stage.has_trials()):
    raise ConfigError(
      f"{name}: the stage {stage.name!r} evaluates the weights of another one; give that one as "
      "`after`, and no choice."
    )
  if stage.after and stage.after.mode == "evaluate":
    raise ConfigError(
      f"{name}: the stage {stage.name!r} is after {stage.after.name!r}, which trains nothing; "
      "let it be after a stage that trains."
    )


def check_score(score: Score, name: str):
  """A score has two ways to be taken, and two directions."""
  known = {"take": ("last", "best"), "better": ("larger", "smaller")}
  for field, values in known.items():
    if getattr(score, field) not in values:
      raise ConfigError(
        f"{name}: Score({field}={getattr(score, field)!r}) is none of {', '.join(values)}."
      )
