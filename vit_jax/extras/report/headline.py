"""The one metric that stands for a run."""

import dataclasses
from collections.abc import Mapping

from vit_jax.evaluation import catalogue
from vit_jax.extras.plots.labels import metric
from vit_jax.extras.report import outcome
from vit_jax.extras.report.run import RecordedRun
from vit_jax.weights.card import parameters_in_words

USUAL = "test"  # the name of the evaluation that recipes report
MANY = 1000  # images, from which on a second decimal of a percentage means something


@dataclasses.dataclass(frozen=True)
class Headline:
  """A metric of a run's last evaluation.

  Attributes:
    key: such as "test/top1".
    step: of the evaluation.
    value: such as 0.98.
    images: that it is a mean of; 0: not known.
  """

  key: str
  step: int
  value: float
  images: int

  @property
  def number(self) -> str:
    """The value: an accuracy in percent, with the digits that the images can tell apart."""
    if catalogue.curve(self.key) != "accuracy":
      return f"{self.value:.4g}"
    return f"{self.value:.{1 + (self.images >= MANY)}%}"

  @property
  def of_images(self) -> str:
    """The number of images, in words; "": not known."""
    if not self.images:
      return ""
    if catalogue.curve(self.key) == "accuracy":
      return f"of {self.images:,} image{'s' * (self.images != 1)}"
    return f"on {self.images:,} image{'s' * (self.images != 1)}"


def headline(run: RecordedRun) -> Headline | None:
  """The headline of a run; None if no evaluation gave a number."""
  key = key_of(run)
  points = outcome.points_of(run, key)
  if not points:
    return None
  step, value = points[-1]
  images = max((_images(line, key) for line in run.lines if line["step"] == step), default=0)
  return Headline(key, step, value, images)


def _images(line: Mapping, key: str) -> int:
  """How many images a metric is a mean of: of an accuracy, those with a label; 0: not known."""
  name = evaluation_of(key)
  return int(line.get(f"{name}/labelled", line.get(f"{name}/examples", 0)))


def key_of(run: RecordedRun) -> str:
  """The headline metric to show: not of the set that early stopping chose by, and an accuracy.

  Returns "" if there is none.
  """
  choosing = ""
  if run.config is not None:
    choosing = evaluation_of(run.config.early_stopping.metric)

  def rank(key: str) -> tuple[bool, bool, bool]:
    name = evaluation_of(key)
    return name == choosing, name != USUAL, catalogue.curve(key) != "accuracy"

  return min(catalogue.headlines(outcome.keys_of(run)), key=rank, default="")


def evaluation_of(key: str) -> str:
  """The name of the evaluation that gives a metric."""
  return key.rpartition("/")[0]


def in_words(run: RecordedRun, found: Headline) -> str:
  """What the headline is: metric, parameters, and the step if that is not the run's last."""
  facts = [metric(found.key)]
  if run.averaged:
    facts.append(parameters_in_words(True))
  if found.step != run.step:
    facts.append(f"after step {found.step:,} of {run.step:,}")
  return ", ".join(facts)
