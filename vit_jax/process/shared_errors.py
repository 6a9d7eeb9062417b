"""Errors of computations shared by the processes of a run."""

# If a computation between hosts fails, JAX's message begins with one of these codes. The class of
# the error varies.
FAILED = ("UNKNOWN", "UNAVAILABLE", "INTERNAL", "ABORTED", "CANCELLED", "DEADLINE_EXCEEDED")


def is_of_others(error: Exception) -> bool:
  """Whether a computation failed; in a run of several processes, another process may be the cause.

  JAX raises such errors as ValueError too. tensorstore raises ValueError for files; its messages
  contain the error code of the operating system.
  """
  import jax  # slow

  if isinstance(error, jax.errors.JaxRuntimeError):
    return True
  words = str(error)
  plain = type(error) is ValueError and "os_error_code" not in words
  return plain and words.startswith(tuple(f"{code}: " for code in FAILED))
