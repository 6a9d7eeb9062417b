"""What is said of the moving average of a run's parameters."""

from collections.abc import Mapping

ENOUGH = 0.01  # a smaller share of the start is not worth a word


def in_words(average: bool) -> str:
  """Names the parameters that are used."""
  return "moving average of the parameters" if average else "parameters"


def initial_share(optimizer: Mapping[str, object], steps: int) -> float:
  """The weight of the initial parameters in the average.

  Args:
    optimizer: config.optimizer of the run.
    steps: updates so far.
  """
  return 0.0 if optimizer.get("ema_corrected") else float(optimizer["ema"]) ** steps


def warning(share: float) -> str:
  """Warns of an average that holds too much of its start; "" if it does not."""
  if share <= ENOUGH:
    return ""
  return (
    f"{share:.0%} of the moving average is still the initial weights; use --no-average, or train "
    "anew with --config.optimizer.ema_corrected=True."
  )
