"""The durations of a run in steps."""

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

from vit_jax.config import MAX_STEPS, Config, ConfigError, Duration
from vit_jax.config.fields import whole_interval


@dataclasses.dataclass(frozen=True)
class Course:
  """What the learning rate, and all else that changes during a run, depends on.

  Positions are numbers of steps of the run's first batch size. If config.duration is in epochs or
  examples, they follow the images: another batch size changes how far a step leads, and no value
  jumps. If it is in steps, they are the steps.

  Attributes:
    total, warmup: the positions at which the run and its warm-up end.
    scale: how far a step leads from now on.
    shift: the position that step 0 would have if all steps had led that far.
  """

  total: int
  warmup: int
  scale: float = 1.0
  shift: float = 0.0

  def at(self, step):
    """The position after `step` steps, a number or an array."""
    if (self.scale, self.shift) == (1, 0):
      return step
    return step * self.scale + self.shift


@dataclasses.dataclass(frozen=True)
class Steps:
  """All durations of a run in steps, 0 means never; and its course."""

  total: int
  course: Course
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
    first_batch: the batch size of the run's first step.
  """

  step: int = 0
  images: int = 0
  batch_size: int = 0
  first_batch: int = 0

  def up_to(self, step: int) -> int:
    """The images of all steps up to `step`, which is no earlier than the start."""
    return self.images + (step - self.step) * self.batch_size

  def begun(self, batch_size: int) -> "ImageCount":
    """The same, with the batch size of the start that goes on from here."""
    first = self.first_batch or batch_size
    return self._replace(batch_size=batch_size, first_batch=first)


START = ImageCount()


def taken(meta: Mapping, step: int) -> ImageCount:
  """The images of a run up to `step`, from the description of that step's checkpoint.

  The batch size of the later steps is not known yet.

  Raises:
    ValueError: the description is damaged.
  """
  match meta.get("images"):
    case [int(), int(), int(batch_size)] as known:  # by a version that did not record the first one
      known = [*known, batch_size]
    case [int(), int(), int(), int()] as known:
      pass
    case other:
      raise ValueError(f"images={other!r} is not [step, images, batch size, first batch size]")
  last = ImageCount(*known)
  return ImageCount(step, last.up_to(step), first_batch=last.first_batch)


def durations_in_steps(
  config: Config, epoch_examples: int, resume_point: ImageCount = START
) -> Steps:
  """All durations of a run in steps.

  If given in epochs or examples, the run ends after that many images, whatever batch sizes earlier
  starts had. The warm-up is as long as with the first of them. Intervals between repeated actions
  use the current batch size.

  Args:
    config: the settings.
    epoch_examples: the training examples.
    resume_point: the steps and images so far.

  Raises:
    ConfigError: the run is too long, or its warm-up is longer than the run.
  """
  since = resume_point.begun(config.batch_size)

  def steps(duration: Duration, batch_size: int = config.batch_size, **others) -> int:
    return duration.in_steps(batch_size=batch_size, epoch_examples=epoch_examples, **others)

  total = steps(config.duration, step=since.step, images=since.images)

  def interval(duration: Duration) -> int:
    sizes = dict(batch_size=config.batch_size, epoch_examples=lambda: epoch_examples)
    return whole_interval(duration.exact_steps(**sizes), total) if duration else 0

  result = Steps(
    total=total,
    course=Course(
      total=steps(config.duration, since.first_batch),
      warmup=steps(config.schedule.warmup, since.first_batch),
      **_pace(config.duration, since),
    ),
    log=interval(config.log_every),
    evaluate=interval(config.evaluate_every),
    save=interval(config.checkpoint.every),
    keep=nearest_multiple(
      interval(config.checkpoint.keep_every), interval(config.checkpoint.every)
    ),
  )
  if result.total > MAX_STEPS:
    raise ConfigError(
      f"config.duration is {result.total:,} steps with config.batch_size={config.batch_size} and "
      f"{epoch_examples} training images; the most is {MAX_STEPS:,}."
    )
  course = result.course
  if course.warmup > course.total:
    raise ConfigError(
      f"config.schedule.warmup is {course.warmup} steps, longer than the run of {course.total} "
      f"steps (config.duration with config.batch_size={since.first_batch} and {epoch_examples} "
      f"training images); the most is {course.total}."
    )
  return result


def _pace(duration: Duration, since: ImageCount) -> dict[str, float]:
  """`scale` and `shift` of the course of a run that goes on from `since`."""
  if duration.steps:
    return {}
  ahead = since.images - since.step * since.batch_size  # the same at every later step
  return {"scale": since.batch_size / since.first_batch, "shift": ahead / since.first_batch}


def nearest_multiple(number: int, of: int) -> int:
  """The multiple of `of` nearest to `number`, at least `of`; `number` itself if either is 0."""
  if not number or not of:
    return number
  return max(round(number / of), 1) * of


def due(step: int, every: int) -> bool:
  """Whether an action that is repeated every `every` steps (0: never) is due after `step`."""
  return every > 0 and step % every == 0
