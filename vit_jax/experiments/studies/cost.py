"""The cost of one run."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Cost:
  """The cost of one run.

  Attributes:
    steps: its length; None if that depends on data that is not there.
    batch_size: images a step.
    flops: of training on one image.
    seconds: of compiling and training on the devices at hand; None if that is not measured.
  """

  steps: int | None
  batch_size: int
  flops: float
  seconds: float | None = None

  def exaflops(self, steps: int) -> float:
    """Those of a number of steps."""
    return steps * self.batch_size * self.flops / 1e18
