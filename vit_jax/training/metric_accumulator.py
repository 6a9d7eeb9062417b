"""Means of the metrics that vary by batch, over the steps since the last line of metrics."""

import dataclasses
from collections.abc import Mapping

from vit_jax.config import ConfigError
from vit_jax.learning.objective import PREFIX

BATCH = "batch/"  # prefix for the metrics of a single batch


def of_one_batch(name: str) -> bool:
  """Whether a metric of a step varies by batch, so that its mean says more."""
  return name == "loss" or name.startswith(PREFIX)


@dataclasses.dataclass
class MetricAccumulator:
  """The sums of the metrics of the steps since the last line.

  It is saved with each checkpoint, so that a resumed run writes the same lines.

  Attributes:
    steps: the number of steps, without those whose update was skipped.
    sums: the sum of each metric, by name.
  """

  steps: int = 0
  sums: dict[str, float] = dataclasses.field(default_factory=dict)

  @classmethod
  def recorded(cls, meta: Mapping) -> "MetricAccumulator":
    """Reads the accumulator from the description of a checkpoint.

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
    """Returns the means, {} if there were no steps, and starts again from zero."""
    means = {name: value / self.steps for name, value in self.sums.items()}
    self.steps = 0
    self.sums = {}
    return means
