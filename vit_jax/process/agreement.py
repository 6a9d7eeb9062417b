"""What the processes of a run tell each other; each function is called by all, at the same step.

JAX is imported inside functions, because loading it takes seconds.
"""

from collections.abc import Callable

MAX_OF_EACH, MAX_OF_FIRST = 2**11, 2**16  # bytes of a text


def allgather_str(text: str) -> list[str]:
  """The text of every process, in their order; a long one is shortened."""
  import jax
  from jax.experimental import multihost_utils

  if jax.process_count() == 1:
    return [text]
  return [_text(row) for row in multihost_utils.process_allgather(_padded(text, MAX_OF_EACH))]


def broadcast_str(words: Callable[[], str]) -> str:
  """What `words` returns on the first process; the others do not call it. A long text is cut."""
  import jax
  from jax.experimental import multihost_utils

  if jax.process_count() == 1:
    return words()
  text = words() if jax.process_index() == 0 else ""
  return _text(multihost_utils.broadcast_one_to_all(_padded(text, MAX_OF_FIRST)))


def broadcast_bool(answer: bool) -> bool:
  """The answer of the first process, on every process."""
  return bool(broadcast_str(lambda: "yes" if answer else ""))


def _padded(text, length):
  import numpy as np

  return np.frombuffer(text.encode(errors="replace")[:length].ljust(length, b"\0"), np.uint8)


def _text(row):
  return bytes(row).rstrip(b"\0").decode(errors="replace")
