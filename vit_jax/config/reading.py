"""Paths and files named by users. Only regular files are opened, so that no read waits for ever.

Opening a FIFO for reading waits until somebody writes to it, and reading a device may never end.
The user would not learn what is wrong.
"""

import errno
import json
import os
import pathlib
import re
import stat

from vit_jax.config import ConfigError

_URL = re.compile("[A-Za-z][A-Za-z0-9+.-]+:/")  # one slash, because pathlib merges the two

_KINDS = (
  (stat.S_ISDIR, "a folder"),
  (stat.S_ISFIFO, "a FIFO"),
  (stat.S_ISSOCK, "a socket"),
  (stat.S_ISCHR, "a device"),
  (stat.S_ISBLK, "a device"),
)


def expanded(path: str | pathlib.Path) -> pathlib.Path:
  """The path with ~ or ~USER replaced by the home folder.

  Raises:
    ConfigError: there is no such user, or the path is a URL.
  """
  if _URL.match(str(path)):
    raise ConfigError(
      f"{path} is a URL, and only files and folders of this machine can be used: mount the storage "
      "as a folder and give its path."
    )
  try:
    return pathlib.Path(path).expanduser()
  except RuntimeError as error:
    user = pathlib.Path(path).parts[0]
    raise ConfigError(f"{path}: there is no user {user} here; give another path.") from error


def regular(path: str, flags: int) -> int:
  """An opener that never waits: `open(path, opener=regular)`.

  Raises:
    OSError: as `os.open`, or the path does not lead to a regular file.
  """
  try:
    descriptor = os.open(path, flags | os.O_NONBLOCK, 0o666)
  except OSError as error:
    if error.errno == errno.ENXIO:  # a socket, or a FIFO opened for writing
      raise _irregular(os.stat(path).st_mode, path) from error
    raise
  mode = os.fstat(descriptor).st_mode
  if not stat.S_ISREG(mode):
    os.close(descriptor)
    raise _irregular(mode, path)
  return descriptor


def read_bytes(path: str | pathlib.Path, *, most: int) -> bytes:
  """All bytes of a regular file.

  Args:
    path: the file.
    most: largest allowed size, bytes.

  Raises:
    OSError: as `regular`, or the file is larger.
  """
  with open(path, "rb", buffering=0, opener=regular) as stream:
    size = os.fstat(stream.fileno()).st_size
    if size > most:
      raise OSError(errno.EFBIG, f"It is larger than {most:,} bytes ({size:,})", str(path))
    return stream.readall()


def read_json(path: str | pathlib.Path, *, most: int) -> dict:
  """The JSON object in a regular file.

  Args:
    path: the file.
    most: largest allowed size, bytes.

  Raises:
    OSError: as `read_bytes`.
    ValueError: it is not JSON, it is nested too deeply, or it is not an object.
  """
  try:
    found = json.loads(read_bytes(path, most=most))
  except RecursionError as error:
    raise ValueError("it is nested too deeply") from error
  if not isinstance(found, dict):
    raise ValueError("it is not a JSON object")
  return found


def _irregular(mode: int, path: str) -> OSError:
  kind = next((name for is_kind, name in _KINDS if is_kind(mode)), "of an unknown kind")
  return OSError(errno.EINVAL, f"It is {kind}, not a file", str(path))
