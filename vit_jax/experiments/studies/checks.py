"""Checks the runs of a study before one of them starts, and what each costs. Imports JAX."""

import dataclasses
import functools
import pathlib

from vit_jax import models, recipes
from vit_jax.config import Config, ConfigError, Dataset, similar
from vit_jax.data.sources import SourceError
from vit_jax.evaluation import registry
from vit_jax.evaluation.opening import open_alone
from vit_jax.experiments import holdout, runs
from vit_jax.experiments.holdout import Judged
from vit_jax.experiments.runs import Run
from vit_jax.experiments.studies.cost import Cost
from vit_jax.experiments.studies.study import Score, naming
from vit_jax.learning import objectives
from vit_jax.training import checks, model_of_weights
from vit_jax.training.resumed import history_of
from vit_jax.training.run import open_data


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


def costs(requests: list[Request]) -> list[Cost]:
  """Checks settings and scores, and returns the cost of each run. Data may be missing.

  Raises:
    ConfigError: names the cell and what is wrong.
  """
  found = []
  for one in requests:
    with naming(one.cell):
      found.append(checked_cost(one))
  return found


def checked_cost(request: Request) -> Cost:
  """The cost of a run whose settings and score are right."""
  config = accepted(request.run)
  check_score(config, request)
  if request.run.mode == "evaluate":
    return Cost(0, config.batch_size, 0.0, seconds=0.0)
  objective = objectives.configured(config, models.configured(config.model))
  flops = objective.training_flops(config.data.image_size)
  return Cost(steps_of(config), config.batch_size, flops)


@functools.cache
def accepted(run: Run) -> Config:
  """The config of a run, checked; made-up images take the place of data that is not given.

  An empty config.model.name becomes that of the weights.
  """
  config = recipes.resolve(run.recipe, run.overrides)
  if run.mode == "evaluate":
    checks.check_evaluation(config)
    return config
  if not config.model.name and pathlib.Path(config.init_from).parent == run.folder.parent:
    raise ConfigError(
      "config.model.name is empty in a stage that starts from another run of the study, whose "
      "weights may not exist yet; name the model in its settings, such as "
      '{"model.name": "ViT-B/16"}.'
    )
  config = model_of_weights.completed(config, {})
  given = all(dataset.source for dataset in config.data.training().values())
  if given:
    runs.check_config(run.recipe, config)
    return config
  data = dataclasses.replace(config.data, train=Dataset(source="synthetic"))
  checks.check(dataclasses.replace(config, data=data))
  return config


def check_score(config: Config, request: Request):
  """Checks that the evaluations of a run give its score.

  Raises:
    ConfigError: they give none, others, or one that is better in the other direction.
  """
  names, score = registry.names(config), request.score
  if not names:
    raise ConfigError(
      f"{request.run.recipe} evaluates nothing, so nothing tells whether it is done; give it an "
      "evaluation, such as config.data.evaluate."
    )
  if score is None:
    return
  if score.metric not in names:
    raise ConfigError(
      f"No evaluation of {request.run.recipe} is sure to write {score.metric!r}; nearest: "
      f"{similar(score.metric, names)}."
    )
  smaller = registry.metric(score.metric).smaller_is_better
  if smaller != (score.better == "smaller"):
    right = "smaller" if smaller else "larger"
    raise ConfigError(f"Of {score.metric}, {right} is better; give Score(better={right!r}).")


def steps_of(config: Config) -> int | None:
  """The length of a run; None if it depends on data that is not there and not in the tables."""
  units = config.duration.given()
  examples = epoch_of(config) if "epochs" in units else 1
  if examples is None:
    return None
  return config.duration.in_steps(batch_size=config.batch_size, epoch_examples=examples)


def epoch_of(config: Config) -> int | None:
  """Training images: those that are there, else those of the paper's dataset; None: not known."""
  try:
    return len(holdout.trained(config))
  except SourceError:
    return recipes.examples_of(config)


def check_data(chains: list[list[Request]], choices: list[tuple[Request, Request, Request]]):
  """Checks that all data is there, and that nothing is trained or chosen on what is scored.

  Args:
    chains: the runs of each cell with each candidate, and those up to each trial of a
      later stage; the first one first.
    choices: a trial, the run that its choice is for, and the last run of the cell.

  Raises:
    ConfigError: names the cell.
  """
  seen = set()
  for chain in chains:
    configs = [accepted(one.run) for one in chain]
    scores = [one.score for one in chain]
    start = configs[0].init_from
    parts = [(of.data, of.few_shot, of.nearest, of.objective) for of in configs]
    key = repr([start, *parts, *scores])
    if key not in seen:
      with naming(chain[-1].cell):
        check_chain(chain, configs)
    seen.add(key)
  for some in choices:
    configs = [accepted(one.run) for one in some]
    key = repr(
      [(one.score, of.data, of.few_shot, of.nearest) for one, of in zip(some, configs, strict=True)]
    )
    if key not in seen:
      remarks = (" (trial)", "", "")
      trial, final, last = map(judged, some, configs, remarks)
      with naming(some[0].cell):
        holdout.check(trial, final)
        if last != final:
          holdout.check_unseen(trial, last)
    seen.add(key)


def check_chain(chain: list[Request], configs: list[Config]):
  """Opens the data of runs; none may train on what the last one scores if it does not allow it."""
  known = history_of(configs[0].init_from)  # of the weights that the first run starts from
  for one, config in zip(chain, configs, strict=True):
    if one.run.mode == "evaluate":
      open_alone(config, known)
    else:
      runs.check_config(one.run.recipe, config)  # refuses data that is not given
      data = open_data(config, known)
      model = config.model.with_classes(len(data.train.class_names) or 1)
      check_score(dataclasses.replace(config, model=model), one)  # of the classes that there are
  *earlier, last = map(judged, chain, configs)
  if last.config.data.allow_overlap:
    return
  for one in earlier:
    for use in one.trains_on():
      for test in last.scores():
        holdout.check_apart(use, test)


def judged(request: Request, config: Config, remark: str = "") -> Judged:
  """A run with what it is judged by; a remark follows its name in messages."""
  metric = request.score.metric if request.score else ""
  return Judged(f"{request.run.recipe}{remark}", config, metric)
