"""Lengths of training, in steps, epochs or examples."""

import dataclasses
from collections.abc import Callable

from vit_jax.config.fields import AUTO, MAX_STEPS, Rule, group, setting


@dataclasses.dataclass(frozen=True)
class Duration:
  """A length of training in exactly one unit; if all three are 0, it means never.

  While it is left to a rule, all three are AUTO.
  """

  steps: int = setting(0, "optimizer updates", low=0, high=MAX_STEPS)
  epochs: float = setting(
    0.0,
    "passes over the training examples; for a mix, over as many as all its sources have together",
    low=0,
    high=1e9,
  )
  examples: int = setting(0, "training examples", low=0, high=10**15)

  def __bool__(self) -> bool:
    return bool(self.given())

  def given(self) -> dict[str, float]:
    """The units that are not 0."""
    return {unit: value for unit, value in dataclasses.asdict(self).items() if value}

  def in_steps(
    self, *, batch_size: int, epoch_examples: int, step: int = 0, images: int = 0
  ) -> int:
    """The duration rounded to whole steps; at least 1 unless the duration is 0.

    Args:
      batch_size: of the steps after `step`.
      epoch_examples: the training examples.
      step, images: a run took `images` images in its first `step` steps, whatever their batch
        sizes; the duration counts from its start. Lengths in steps stay as they are.
    """
    examples = self.examples + self.epochs * epoch_examples
    if examples:
      examples += step * batch_size - images
    steps = self.steps + round(examples / batch_size)
    return max(steps, 1) if self.given() else 0

  def exact_steps(self, *, batch_size: int, epoch_examples: Callable[[], int]) -> float:
    """The duration in steps, not rounded; `epoch_examples` is asked only if they count."""
    passes = self.epochs * epoch_examples() if self.epochs else 0
    return self.steps + (self.examples + passes) / batch_size

  def part(self, parts: int) -> "Duration":
    """One of so many equal parts, in the same unit; whole steps and examples, at least one."""
    count = lambda number: max(1, round(number / parts)) if number else 0
    return Duration(count(self.steps), self.epochs / parts, count(self.examples))


LEFT_TO_RULE = Duration(AUTO, AUTO, AUTO)


def length(*, auto: Rule | None = None, used_if=(), **units):
  """A field that holds a duration; with a rule and without units, it is left to the rule."""
  units = units or (dataclasses.asdict(LEFT_TO_RULE) if auto else {})
  return group(Duration, auto=auto, used_if=used_if, **units)


def is_auto(value) -> bool:
  """Whether the value of a setting, or of a duration, is left to its rule."""
  return value in (AUTO, LEFT_TO_RULE)
