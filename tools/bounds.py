"""Numbers of a tool's command line, with bounds."""

import argparse
from collections.abc import Callable


def whole(low: int, high: int) -> Callable[[str], int]:
  """Reads a whole number from `low` to `high`; for `type=` of argparse."""

  def read(text: str) -> int:
    try:
      number = int(text)
    except ValueError:
      number = None
    if number is None or not low <= number <= high:
      raise argparse.ArgumentTypeError(f"{text!r} is no whole number from {low:,} to {high:,}")
    return number

  return read
