"""The mean of what changes from batch to batch, over the steps since the last line of metrics."""

import dataclasses
from collections.abc import Mapping

from vit_jax.config import ConfigError
from vit_jax.learning.objective import PREFIX

BATCH = "batch/"  # of the names of metrics of one batch alone


def of_one_batch(name: str) -> bool:
  """Whether a metric of a step changes from batch to batch, so that its mean says more."""
  return name == "loss" or name.startswith(PREFIX)


@dataclasses.dataclass
class MetricAccumulator:
  """The sums of the metrics of the steps since the last line.

  It is saved with each checkpoint, so that a run that goes on writes the same lines.

  Attributes:
    steps: how many; steps whose update was left out do not count.
    sums: by the name of the metric.
  """

  steps: int = 0
  sums: dict[str, float] = dataclasses.field(default_factory=dict)

  @classmethod
  def recorded(cls, meta: Mapping) -> "MetricAccumulator":
    """That of the description of a checkpoint.

    Raises:
      ConfigError: the description is damaged.
    """
    match meta.get("since_line"):
      case {"steps": int(steps), "sums": dict(sums)} if all(
        type(x) is float for x in sums.values()
      ):
        return cls(steps, sums)
      case other:
        raise ConfigError(f"A checkpoint is damaged: since_line={other!r} is not steps and sums.")

  def add(self, metrics: Mapping[str, float]):
    """Adds the metrics of a step."""
    self.steps += 1
    self.sums = {name: self.sums.get(name, 0.0) + value for name, value in metrics.items()}

  def take(self) -> dict[str, float]:
    """The means, {} of no steps; the next line begins."""
    means = {name: value / self.steps for name, value in self.sums.items()}
    self.steps, self.sums = 0, {}
    return means
