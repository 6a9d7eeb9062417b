"""The durations of a run in steps."""

import dataclasses
from typing import NamedTuple

from vit_jax.config import MOST_STEPS, Config, ConfigError, Duration


@dataclasses.dataclass(frozen=True)
class Steps:
  """All durations of a run in steps; 0 means never."""

  total: int
  warmup: int
  log: int
  evaluate: int
  save: int
  keep: int


class ImageCount(NamedTuple):
  """The training images that a run has taken, whatever batch size each of its starts had.

  They are also the position of the next image in the stream of examples.

  Attributes:
    step, images: the images up to the step after which this start goes on.
    batch_size: of the later steps.
  """

  step: int
  images: int
  batch_size: int

  def up_to(self, step: int) -> int:
    """The images of all steps up to `step`, which is no earlier than the start."""
    return self.images + (step - self.step) * self.batch_size


def of_run(config: Config, epoch_examples: int) -> Steps:
  """All durations of a run in steps.

  Raises:
    ConfigError: the run is too long, or its warm-up is longer than the run.
  """

  def steps(duration: Duration) -> int:
    return duration.in_steps(batch_size=config.batch_size, epoch_examples=epoch_examples)

  result = Steps(
    total=steps(config.duration),
    warmup=steps(config.schedule.warmup),
    log=steps(config.log_every),
    evaluate=steps(config.evaluate_every),
    save=steps(config.checkpoint.every),
    keep=nearest_multiple(steps(config.checkpoint.keep_every), steps(config.checkpoint.every)),
  )
  if result.total > MOST_STEPS:
    raise ConfigError(
      f"config.duration is {result.total:,} steps with config.batch_size={config.batch_size} and "
      f"{epoch_examples} training images; the most is {MOST_STEPS:,}."
    )
  if result.warmup > result.total:
    raise ConfigError(
      f"config.schedule.warmup is {result.warmup} steps, longer than the run of {result.total} "
      f"steps (config.duration with config.batch_size={config.batch_size} and {epoch_examples} "
      f"training images); the most is {result.total}."
    )
  return result


def nearest_multiple(number: int, of: int) -> int:
  """The multiple of `of` nearest to `number`, at least `of`; `number` itself if either is 0."""
  return max(round(number / of), 1) * of if number and of else number


def due(step: int, every: int) -> bool:
  """Whether an action that is repeated every `every` steps (0: never) is due after `step`."""
  return every > 0 and step % every == 0
