"""Files that are there whole or not at all."""

import contextlib
import os
import pathlib
import secrets
from collections.abc import Callable


def write_whole(path: str, fill: Callable[[str], None]) -> None:
  """Lets `fill` write a file that takes its name when it is complete and on the disk.

  Raises:
    OSError: it cannot be written; names `path`. Or `fill` cannot read something: names that.
  """
  partial = f"{path}.{secrets.token_hex(8)}.partial"
  try:
    fill(partial)
    with contextlib.suppress(FileNotFoundError):  # Another process made it all, and tidied up.
      with open(partial, "rb") as stream:
        os.fsync(stream.fileno())
      os.replace(partial, path)
  except OSError as error:
    if error.filename in (None, partial):
      error.filename, error.filename2 = path, None
    raise
  finally:
    pathlib.Path(partial).unlink(missing_ok=True)
