"""Words and warnings about the moving average of a run's parameters."""

from collections.abc import Mapping

ENOUGH = 0.01  # the largest weight of the initial parameters that needs no warning


def in_words(average: bool) -> str:
  """Names the parameters that are used."""
  if average:
    return "moving average of the parameters"
  return "parameters"


def initial_share(optimizer: Mapping[str, object], steps: int) -> float:
  """The weight of the initial parameters in the average.

  Args:
    optimizer: config.optimizer of the run.
    steps: updates so far.
  """
  if optimizer.get("ema_corrected"):
    return 0.0
  return float(optimizer["ema"]) ** steps


def warning(share: float) -> str:
  """A warning if the initial parameters have too much weight in the average; "" otherwise."""
  if share <= ENOUGH:
    return ""
  return (
    f"{share:.0%} of the moving average is still the initial weights; use --raw-params, or train "
    "anew with --config.optimizer.ema_corrected=True."
  )
