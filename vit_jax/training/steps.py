"""The durations of a run in steps."""

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

from vit_jax.config import MAX_STEPS, Config, ConfigError, Duration


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

  The count is also the position of the next image in the stream of examples.

  Attributes:
    step, images: the last step before this start, and the images up to it.
    batch_size: the batch size of the later steps.
  """

  step: int
  images: int
  batch_size: int

  def up_to(self, step: int) -> int:
    """The images of all steps up to `step`, which is no earlier than the start."""
    return self.images + (step - self.step) * self.batch_size


START = ImageCount(0, 0, 0)


def taken(meta: Mapping, step: int) -> int:
  """The images of a run up to `step`, from the description of that step's checkpoint.

  Raises:
    ValueError: the description is damaged.
  """
  match meta.get("images"):
    case [int(first), int(images), int(batch_size)]:
      return ImageCount(first, images, batch_size).up_to(step)
    case other:
      raise ValueError(f"images={other!r} is not [step, images, batch size]")


def durations_in_steps(
  config: Config, epoch_examples: int, resume_point: ImageCount = START
) -> Steps:
  """All durations of a run in steps.

  If given in epochs or examples, the run and its warm-up end after that many images, whatever batch
  sizes earlier starts had. A finished warm-up is moved by the same rule, so that the decay stays
  aligned with the images, but keeps at least one step. If given in steps, both stay as they are.
  Intervals between repeated actions use the current batch size.

  Args:
    config: the settings.
    epoch_examples: the training examples.
    resume_point: the steps and images so far.

  Raises:
    ConfigError: the run is too long, or its warm-up is longer than the run.
  """

  def steps(duration: Duration, since: ImageCount = START) -> int:
    return duration.in_steps(
      batch_size=config.batch_size,
      epoch_examples=epoch_examples,
      step=since.step,
      images=since.images,
    )

  result = Steps(
    total=steps(config.duration, resume_point),
    warmup=steps(config.schedule.warmup, resume_point),
    log=steps(config.log_every),
    evaluate=steps(config.evaluate_every),
    save=steps(config.checkpoint.every),
    keep=nearest_multiple(steps(config.checkpoint.keep_every), steps(config.checkpoint.every)),
  )
  if result.total > MAX_STEPS:
    raise ConfigError(
      f"config.duration is {result.total:,} steps with config.batch_size={config.batch_size} and "
      f"{epoch_examples} training images; the most is {MAX_STEPS:,}."
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
  if not number or not of:
    return number
  return max(round(number / of), 1) * of


def due(step: int, every: int) -> bool:
  """Whether an action that is repeated every `every` steps (0: never) is due after `step`."""
  return every > 0 and step % every == 0
