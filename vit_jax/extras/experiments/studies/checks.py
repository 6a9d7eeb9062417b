"""Checks the runs of a study before one of them starts, and what each costs. Imports JAX."""

import dataclasses
import functools
from collections.abc import Callable, Sequence

from vit_jax import recipes
from vit_jax.config import AUTO, Config, ConfigError, Dataset, similar
from vit_jax.config.fields import MAX_PIXELS
from vit_jax.config.resolve import Facts, check_known, value_of, with_value
from vit_jax.data.sources import SourceError
from vit_jax.evaluation import catalogue
from vit_jax.evaluation.evaluations import open_alone
from vit_jax.extras.experiments import holdout, runs
from vit_jax.extras.experiments.facts import decided
from vit_jax.extras.experiments.holdout import ScoredRun
from vit_jax.extras.experiments.runs import Run
from vit_jax.extras.experiments.studies.jobs import Cost
from vit_jax.extras.experiments.studies.study import Score, naming
from vit_jax.learning import objective as objectives
from vit_jax.storage.paths import path_of
from vit_jax.training import checks, steps
from vit_jax.training.facts import LATER
from vit_jax.training.planning import before_devices
from vit_jax.training.run import open_data
from vit_jax.training.start import learned_from
from vit_jax.weights.card import Card

# Settings that weights determine, with example values.
OF_WEIGHTS = {"model.name": '"ViT-B/16"', "data.image_size": "384"}
# Stands in for weights that need not be read; with it every setting of crops and resizing has an
# effect.
UNREAD = Card(image_size=0, resize=MAX_PIXELS)


@dataclasses.dataclass(frozen=True)
class Request:
  """A run to check.

  Attributes:
    cell: label of its cell.
    run: the run.
    score: how it is scored; None if other runs start from it.
  """

  cell: str
  run: Run
  score: Score | None

  @property
  def config(self) -> Config:
    """Its config, checked."""
    return accepted(self.run)

  def scored(self, remark: str = "") -> ScoredRun:
    """The run with its metric; in messages, `remark` follows the name of the recipe."""
    metric = ""
    if self.score:
      metric = self.score.metric
    return ScoredRun(f"{self.run.recipe}{remark}", self.config, metric)


def checked_cost(request: Request) -> Cost:
  """The cost of a run whose settings and score are right; its data may be missing.

  Raises:
    ConfigError: names the cell and what is wrong.
  """
  with naming(request.cell):
    config = request.config
    check_score(config, request)
    if request.run.mode == "evaluate":
      return Cost(steps=0, batch_size=0, flops=0.0, seconds=0.0)
    objective = objectives.of_config(checks.with_one_class(config))  # if the classes are not known
    flops = objective.training_flops(config.data.image_size)
    trains_all = objectives.trains_all(objective, config.optimizer)
    return Cost(steps_of(config), config.batch_size, flops, trains_all=trains_all)


@functools.cache
def accepted(run: Run) -> Config:
  """The config of a run, checked; made-up images stand in for data that is not given.

  Rules decide AUTO settings as far as its weights and its data are available.
  """
  asked = recipes.resolve(run.recipe, run.overrides)
  if run.mode == "evaluate":
    checks.check_evaluation(asked)
    return asked
  config = decided(asked, known_of(asked, run))
  check_known(config, LATER)
  given = all(dataset.source for dataset in config.data.training().values())
  if given:
    runs.check_config(run.recipe, asked, config)
    return config
  checks.check(asked, with_value(config, "data.train", Dataset(source="not given yet")))
  return config


def known_of(asked: Config, run: Run) -> Facts:
  """The facts of a run before it starts; weights are read only if its cost depends on them.

  Raises:
    ConfigError: its cost depends on the weights of another run of the study, or weights cannot be
      read.
  """
  facts = before_devices(asked)
  if not asked.init_from:
    return facts
  needed = {key: text for key, text in OF_WEIGHTS.items() if value_of(asked, key) == AUTO}
  if not needed:
    return {**facts, "card": lambda config: UNREAD}
  if path_of(asked.init_from).parent == run.folder.parent:
    key, text = next(iter(needed.items()))
    raise ConfigError(
      f"config.{key} is {AUTO} in a stage that starts from another run of the study, whose weights "
      f'may not exist yet; give it in the settings of the stage, such as {{"{key}": {text}}}.'
    )
  return facts


def check_score(config: Config, request: Request):
  """Checks that the evaluations of a run give its score.

  Raises:
    ConfigError: they give none, others, or one that is better in the other direction.
  """
  names = catalogue.names(config)
  score = request.score
  if not names:
    raise ConfigError(
      f"{request.run.recipe} evaluates nothing, so nothing tells whether it is done; give it an "
      "evaluation, such as config.evaluate.test."
    )
  if score is None:
    return
  if score.metric not in names:
    raise ConfigError(
      f"No evaluation of {request.run.recipe} is sure to write {score.metric!r}; nearest: "
      f"{similar(score.metric, names)}."
    )
  smaller = catalogue.metric(score.metric).smaller_is_better
  if smaller != (score.better == "smaller"):
    right = "smaller" if smaller else "larger"
    raise ConfigError(f"Of {score.metric}, {right} is better; give Score(better={right!r}).")


def steps_of(config: Config) -> int | None:
  """The length of a run; None if it depends on data that is missing and not in the tables.

  Raises:
    ConfigError: the run is too short, such as for its warm-up.
  """
  examples = epoch_of(config)
  if examples is not None:
    return steps.durations_in_steps(config, examples).total
  if "epochs" in config.duration.given():
    return None
  return config.duration.in_steps(batch_size=config.batch_size, epoch_examples=1)


def epoch_of(config: Config) -> int | None:
  """The number of training images, from the data or the paper's dataset; None if not known."""
  try:
    return len(holdout.training_source(config))
  except SourceError:
    return recipes.examples_of(config)


def check_data(chains: list[list[Request]], choices: list[tuple[Request, Request, Request]]):
  """Checks that all data is available, and that no scored data is used to train or to choose.

  Runs with the same data are checked once.

  Args:
    chains: the runs of each cell with each candidate, and those up to each trial of a
      later stage; the first one first.
    choices: a trial, the run that its choice is for, and the last run of the cell.

  Raises:
    ConfigError: names the cell.
  """
  for chain in first_of_each(chains, lambda chain: chain[0].config.init_from + data_of(chain)):
    with naming(chain[-1].cell):
      check_chain(chain)
  for trial, final, last in first_of_each(choices, data_of):
    with naming(trial.cell):
      tried = trial.scored(" (trial)")
      holdout.check(tried, final.scored())
      if last != final:
        holdout.check_unseen(tried, last.scored())


def first_of_each(items: list, key: Callable) -> list:
  """The first item with each value of `key`."""
  by_key = {}
  for item in items:
    by_key.setdefault(key(item), item)
  return list(by_key.values())


def data_of(some: Sequence[Request]) -> str:
  """The data that runs read, as text."""
  configs = [(one.score, one.config) for one in some]
  return repr([(score, c.data, c.evaluate, c.objective) for score, c in configs])


def check_chain(chain: list[Request]):
  """Opens the data of runs; none may train on what the last one scores unless that allows it."""
  places = [chain[0].config.init_from]
  for request in chain:
    config = request.config
    if request.run.mode == "evaluate":
      open_alone(config, learned_from(*places))
    else:
      checks.check_given(config)  # refuses data that is not given
      places.append(config.objective.teacher)  # of this run, and of those that start from it
      open_data(config, learned_from(*places))
      check_score(config, request)  # again, now that the classes are known
  *earlier, last = [request.scored() for request in chain]
  if not last.config.data.allow_overlap:
    for run in earlier:
      holdout.check_apart(run.trains_on(), last.scores())
