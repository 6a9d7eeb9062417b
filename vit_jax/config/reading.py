"""Paths and files named by users: only regular files are opened, so that nothing waits for ever.

Opening a FIFO for reading waits until somebody writes to it, a device may never end, and neither
tells the user what is wrong.
"""

import errno
import os
import pathlib
import re
import stat

from vit_jax.config import ConfigError

_URL = re.compile("[A-Za-z][A-Za-z0-9+.-]+:/")  # a path has lost one of the two slashes

_KINDS = (
  (stat.S_ISDIR, "a folder"),
  (stat.S_ISFIFO, "a FIFO"),
  (stat.S_ISSOCK, "a socket"),
  (stat.S_ISCHR, "a device"),
  (stat.S_ISBLK, "a device"),
)


def expanded(path: str | pathlib.Path) -> pathlib.Path:
  """The path with the home folder in place of ~ or ~USER.

  Raises:
    ConfigError: there is no such user, or it is a URL.
  """
  if _URL.match(str(path)):
    raise ConfigError(
      f"{path} is a URL, and only files and folders of this machine can be used: mount the storage "
      "as a folder, and give its path."
    )
  try:
    return pathlib.Path(path).expanduser()
  except RuntimeError as error:
    user = pathlib.Path(path).parts[0]
    raise ConfigError(f"{path}: {user} is the home of no user here; give another path.") from error


def regular(path: str, flags: int) -> int:
  """An opener, `open(path, opener=regular)`, that waits for nobody.

  Raises:
    OSError: as `os.open`, or what the path leads to is no regular file.
  """
  try:
    descriptor = os.open(path, flags | os.O_NONBLOCK, 0o666)
  except OSError as error:
    if error.errno == errno.ENXIO:  # a socket, or a FIFO that is to be written to
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
    most: bytes that it may have.

  Raises:
    OSError: as `regular`, or the file is larger.
  """
  with open(path, "rb", buffering=0, opener=regular) as stream:
    size = os.fstat(stream.fileno()).st_size
    if size > most:
      raise OSError(errno.EFBIG, f"It is larger than {most:,} bytes ({size:,})", str(path))
    return stream.readall()


def _irregular(mode: int, path: str) -> OSError:
  kind = next((name for is_kind, name in _KINDS if is_kind(mode)), "of an unknown kind")
  return OSError(errno.EINVAL, f"It is {kind}, not a file", str(path))
