"""Checks the arrays of a weight file of any format: their number, names, types and values."""

import contextlib
import errno
import pathlib
from collections.abc import Iterator

import numpy as np

# No valid weight file exceeds these.
MAX_BYTES = 32 * 2**30
MAX_ARRAYS = 5_000
MAX_NAME = 300  # characters
MAX_PARTS = 16  # levels of a name, between slashes
TYPES = ("float16", "bfloat16", "float32", "float64")


def checked(flat: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
  """Checks arrays, and returns them in float32, the type of all parameters of this project.

  Args:
    flat: {"a/b": array}.

  Raises:
    ValueError: there are no arrays or too many; a name is not valid; or an array is empty, has no
      floating-point type, or is not finite in float32.
  """
  check_count(len(flat))
  for name, array in flat.items():
    check_name(name)
    if array.dtype.name not in TYPES:
      raise ValueError(
        f"{name} holds {array.dtype}; weights are floating-point numbers ({', '.join(TYPES)})"
      )
    if not array.size:
      raise ValueError(f"{name} is empty, of shape {array.shape}")
    check_finite(name, array)
  return {name: np.asarray(array, np.float32) for name, array in flat.items()}


def check_count(count: int):
  """Checks the number of arrays.

  Raises:
    ValueError: there are none, or too many.
  """
  if not 0 < count <= MAX_ARRAYS:
    raise ValueError(f"it holds {count:,} arrays; it must hold 1 to {MAX_ARRAYS:,}")


def check_name(name):
  """Checks the name of a parameter.

  Raises:
    ValueError: the name is not valid.
  """
  levels = []
  if isinstance(name, str):
    levels = name.split("/")
  if not all(levels) or not 0 < len(levels) <= MAX_PARTS or not name.isprintable():
    raise ValueError(f"{str(name)[:MAX_NAME]!r} is not a valid name of a parameter")
  if len(name) > MAX_NAME:
    raise ValueError(f"a name has {len(name):,} characters; the most is {MAX_NAME}")


def check_finite(name: str, array: np.ndarray):
  """Checks that all values are finite, also after conversion to float32.

  Raises:
    ValueError: some are NaN, infinite or too large for float32.
  """
  with np.errstate(over="ignore"):
    finite = np.isfinite(np.asarray(array, np.float32))
  if not finite.all():
    raise ValueError(
      f"{np.count_nonzero(~finite):,} of the {array.size:,} values of {name} are NaN, infinite or "
      "too large for float32"
    )


def check_bytes(path: pathlib.Path):
  """Checks the size of a file before it is read.

  Raises:
    ValueError: the file is empty or too large.
  """
  size = path.stat().st_size
  if not 0 < size <= MAX_BYTES:
    raise ValueError(f"it has {size:,} bytes; it must have 1 to {MAX_BYTES:,}")


@contextlib.contextmanager
def reading(path: pathlib.Path, words: str) -> Iterator[None]:
  """Turns every error inside the context into a ValueError that names the file.

  Parsers may raise any kind of error on damaged bytes. An error that names the file stays.

  Args:
    path: the file or folder.
    words: what it should hold.

  Raises:
    ValueError: the content cannot be read.
  """
  try:
    yield
  except Exception as error:
    if str(path) in str(error):
      raise
    reason = str(error).strip().rstrip(".") or type(error).__name__
    if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
      reason = "it does not fit in this machine's memory"
    raise ValueError(f"{path} cannot be read as weights ({words}): {reason}.") from error
