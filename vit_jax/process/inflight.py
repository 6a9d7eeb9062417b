"""Which image each thread reads or decodes, so that one that takes too long can be named."""

import operator
import threading
import time
from collections.abc import Callable

MAX_SHOWN = 8

_begun: dict[int, tuple[float, Callable[[int], str], int]] = {}  # by thread


def begin(name: Callable[[int], str], row: int) -> None:
  """Notes that this thread begins with the image that `name(row)` names.

  The name is only asked for in `in_words`, and must not need to read anything.
  """
  _begun[threading.get_ident()] = time.monotonic(), name, row


def end() -> None:
  """Notes that this thread is done with its image."""
  del _begun[threading.get_ident()]


def in_words() -> list[str]:
  """A line for each image that is in work, the longest first."""
  now = time.monotonic()
  begun = sorted(_begun.values(), key=operator.itemgetter(0))
  return [
    f"  {_named(name, row)} has been read or decoded for {now - since:.0f} s"
    for since, name, row in begun[:MAX_SHOWN]
  ]


def _named(name, row):
  try:
    return name(row)
  except Exception:  # the last words must be spoken
    return f"image {row}"
