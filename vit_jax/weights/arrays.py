"""What the arrays of every file of weights must be, whatever its format: few, named, finite."""

import contextlib
import errno
import pathlib
from collections.abc import Iterator

import numpy as np

# What an honest file of weights never exceeds.
MAX_BYTES = 32 * 2**30
MAX_ARRAYS = 5_000
MAX_NAME = 300  # characters
MAX_PARTS = 16  # of a name
TYPES = ("float16", "bfloat16", "float32", "float64")


def checked(flat: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
  """The same arrays in the byte order of this machine.

  Args:
    flat: {"a/b": array}.

  Raises:
    ValueError: there are none or too many, a name is no name, or an array is empty, not of a
      floating-point type, or not finite once it is float32, which all models compute from.
  """
  if not 0 < len(flat) <= MAX_ARRAYS:
    raise ValueError(f"it holds {len(flat):,} arrays; it must hold 1 to {MAX_ARRAYS:,}")
  for name, array in flat.items():
    check_name(name)
    if array.dtype.name not in TYPES:
      raise ValueError(
        f"{name} holds {array.dtype}; weights are floating-point numbers ({', '.join(TYPES)})"
      )
    if not array.size:
      raise ValueError(f"{name} is empty, of shape {array.shape}")
    check_finite(name, array)
  return {name: x.astype(x.dtype.newbyteorder("="), copy=False) for name, x in flat.items()}


def check_name(name):
  """Refuses what cannot be the name of a parameter.

  Raises:
    ValueError: as in `checked`.
  """
  parts = name.split("/") if isinstance(name, str) else []
  if not all(parts) or not 0 < len(parts) <= MAX_PARTS or not name.isprintable():
    raise ValueError(f"{str(name)[:MAX_NAME]!r} is no name of a parameter")
  if len(name) > MAX_NAME:
    raise ValueError(f"a name has {len(name):,} characters; the most is {MAX_NAME}")


def check_finite(name: str, array: np.ndarray):
  """Refuses NaN and infinity, also those that only float32 makes of a number.

  Raises:
    ValueError: as in `checked`.
  """
  with np.errstate(over="ignore"):
    finite = np.isfinite(np.asarray(array, np.float32))
  if not finite.all():
    raise ValueError(
      f"{name} holds {np.count_nonzero(~finite):,} values of {array.size:,} that are NaN, infinite "
      "or too large for float32"
    )


def check_bytes(path: pathlib.Path):
  """Refuses a file that is larger than weights ever are, or empty, before it is read.

  Raises:
    ValueError: as it says.
  """
  size = path.stat().st_size
  if not 0 < size <= MAX_BYTES:
    raise ValueError(f"it has {size:,} bytes; it must have 1 to {MAX_BYTES:,}")


@contextlib.contextmanager
def reading(path: pathlib.Path, kind: str) -> Iterator[None]:
  """Names the file in whatever goes wrong with its content.

  Raises:
    ValueError: anything was raised inside, since parsers raise whatever strange bytes lead them to;
      but for an OSError that names a file.
  """
  try:
    yield
  except Exception as error:
    if isinstance(error, OSError) and error.filename:
      raise
    reason = str(error).strip().rstrip(".") or type(error).__name__
    if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
      reason = f"its {path.stat().st_size:,} bytes do not fit in this machine's memory"
    raise ValueError(f"{path} cannot be read as {kind} weights: {reason}.") from error
