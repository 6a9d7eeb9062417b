"""Exchanges text between the processes of a run; all must call each function, at the same step.

JAX is imported inside functions, because loading it takes seconds.
"""

from collections.abc import Callable

# Bytes of a text.
MAX_OF_EACH = 2**11
MAX_OF_FIRST = 2**16


def allgather_str(text: str) -> list[str]:
  """The text of every process, in their order; a long one is shortened."""
  import jax
  from jax.experimental import multihost_utils

  if jax.process_count() == 1:
    return [text]
  with jax.transfer_guard("allow"):  # this transfer is intended, also inside a guarded loop
    rows = multihost_utils.process_allgather(_padded(text, MAX_OF_EACH))
  return [_text(row) for row in rows]


def broadcast_str(words: Callable[[], str]) -> str:
  """The text that `words` returns on the first process, the only one to call it; cut if long."""
  import jax
  from jax.experimental import multihost_utils

  if jax.process_count() == 1:
    return words()
  text = words() if jax.process_index() == 0 else ""
  with jax.transfer_guard("allow"):
    row = multihost_utils.broadcast_one_to_all(_padded(text, MAX_OF_FIRST))
  return _text(row)


def broadcast_bool(answer: bool) -> bool:
  """The answer of the first process, on every process."""
  text = "yes" if answer else ""
  return bool(broadcast_str(lambda: text))


def _padded(text, length):
  import numpy as np

  encoded = text.encode(errors="replace")[:length]
  return np.frombuffer(encoded.ljust(length, b"\0"), np.uint8)


def _text(row):
  return bytes(row).rstrip(b"\0").decode(errors="replace")
