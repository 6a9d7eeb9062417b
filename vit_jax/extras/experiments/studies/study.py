"""The building blocks of a study; configs/studies/NAME.py builds one from them. Imports no JAX."""

import contextlib
import dataclasses
import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from vit_jax.config import ConfigError

EPOCH = "epoch"  # the x axis of a figure that has a point for each evaluation


@dataclasses.dataclass(frozen=True)
class Score:
  """How a run is scored.

  Attributes:
    metric: a metric of any evaluation, such as "test/top1" or "imagenet/5shot".
    take: "last", the metric after the last step, or "best", the best one of all evaluations.
    better: "larger" or "smaller"; checked against the metric's own rule.
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
      as {"data.train.split": "train[:90%]", "evaluate.test.split": "train[90%:]"}.
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
    if self.after is None:
      return [self]
    return [*self.after.chain(), self]

  def has_trials(self) -> bool:
    """Whether settings are chosen."""
    return len(self.choice.options) > 1

  def trials(self, option: Mapping[str, Any]) -> list["Stage"]:
    """The stages that try a candidate."""
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
  """The name of a recipe, NAME.py:ARG, for use in the name of a folder."""
  path, _, argument = recipe.partition(":")
  return re.sub(r"[^\w.+-]+", "_", f"{pathlib.PurePath(path).stem}-{argument}")[:70]


@dataclasses.dataclass(frozen=True)
class Cell:
  """One thing that is compared.

  Attributes:
    label: its name in tables and in --only.
    stage: its last run, which is scored.
    factors: what varies, {"head": "mean", "learning_rate": 1e-3}: columns of the results.
    score: how the stage is scored; None: as the study says.
  """

  label: str
  stage: Stage
  factors: Mapping[str, Any]
  score: Score | None = None


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
    label: the label of the score's axis.
  """

  x: str | tuple[str, ...]
  by: str = ""
  panel: str = ""
  log: bool = False
  label: str = "score"

  def along(self) -> tuple[str, ...]:
    """The columns of `x`."""
    if isinstance(self.x, str):
      return (self.x,)
    return self.x


@dataclasses.dataclass(frozen=True)
class Paper:
  """The paper's own numbers.

  Attributes:
    file: a CSV file. A row belongs to the cell whose factors it has.
    column: holds the score.
    caption: what was measured.
    rows: {column: value} that selects rows, in addition to the factors of the cells.
  """

  file: str
  column: str
  caption: str
  rows: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Study:
  """Cells that are scored in the same way, with several seeds.

  Attributes:
    cells: what is compared.
    drawing: how the results are drawn.
    score: how the last stage of a cell is scored, if the cell does not say it.
    seeds: the seeds are 0, 1, ...
    paper: the paper's numbers; None: it has none.
    means: factors to take means over, a table for each; ("task", "group") is over both.
  """

  cells: tuple[Cell, ...]
  drawing: Drawing
  score: Score = Score()
  seeds: int = 3
  paper: Paper | None = None
  means: tuple[tuple[str, ...], ...] = ()

  def score_of(self, cell: Cell) -> Score:
    """How the last stage of a cell is scored."""
    return cell.score or self.score

  def stages(self) -> list[Stage]:
    """The stages of all cells."""
    return [stage for cell in self.cells for stage in cell.stage.chain()]


@contextlib.contextmanager
def naming(cell: str) -> Iterator[None]:
  """Names the cell in an error about its settings or data."""
  try:
    yield
  except ConfigError as error:
    raise ConfigError(f"The cell {cell!r}: {error}") from error
