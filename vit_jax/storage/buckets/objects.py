"""What a library of a bucket must do, and what its errors mean."""

import enum
import errno
from typing import NamedTuple, Protocol

from vit_jax.process.errors import ConfigError, RunError
from vit_jax.storage.base import Stamp, UnreachableError

NEW = ""  # the version of an object that does not exist yet


class Found(NamedTuple):
  """An object; its version changes with its content, at least."""

  key: str
  size: int
  version: str


class Entry(NamedTuple):
  """What lies in a folder: an object, or a folder, which has no stamp; `base.Entry`."""

  name: str
  stamp: Stamp | None = None

  def is_dir(self) -> bool:
    """Whether it is a folder."""
    return self.stamp is None

  def is_file(self) -> bool:
    """Whether it is an object."""
    return self.stamp is not None

  def is_symlink(self) -> bool:
    """False."""
    return False


class Reason(enum.Enum):
  """Why a request failed."""

  MISSING = enum.auto()  # there is no such object
  CHANGED = enum.auto()  # the object has another version than the expected one
  NO_BUCKET = enum.auto()
  NO_CREDENTIALS = enum.auto()
  CLOCK = enum.auto()  # the service and this machine disagree about the time
  FORBIDDEN = enum.auto()
  QUOTA = enum.auto()
  PASSING = enum.auto()  # it may succeed when it is tried again


class Objects(Protocol):
  """The objects of all buckets of one service; every member raises the library's own errors.

  A member makes one try for each request, and may be called by several threads.

  Attributes:
    who: how to get credentials, in a few words.
  """

  who: str

  def stat(self, bucket: str, key: str) -> Found:
    """An object's size and version."""

  def read(self, bucket: str, found: Found, start: int, stop: int) -> bytes:
    """The bytes from `start` to before `stop` of exactly this version of an object."""

  def read_direct(self, bucket: str, found: Found, start: int, stop: int) -> bytes | None:
    """As `read`, but in little time of a core; None: it failed, and `read` may tell why."""

  def write(self, bucket: str, key: str, content: bytes, expected: str | None) -> str:
    """Writes an object if its version is `expected` (None: any); returns its new version."""

  def upload(self, bucket: str, key: str, path: str):
    """Writes an object with the content of a file of this machine."""

  def list(
    self, bucket: str, prefix: str, page: str, *, deep: bool
  ) -> tuple[list[Found], list[str], str]:
    """A page of the objects whose keys begin with `prefix`.

    If not `deep`, only those without a "/" after the prefix, and the beginnings, with that "/", of
    all others. A page is named by the last member of the answer before it; the first one, and what
    comes after the last one, is "".
    """

  def copy(self, bucket: str, key: str, target: str):
    """Copies an object within its bucket."""

  def delete(self, bucket: str, key: str):
    """Deletes an object; a missing one is no error."""

  def reason(self, error: Exception) -> Reason | None:
    """Why a request failed; None: that is not known."""


def passing(status: int) -> bool:
  """Whether an answer with this status may be another one when the request is made again."""
  return status >= 500 or status in (408, 409, 429)


class RefusedError(UnreachableError, ConfigError):
  """A bucket cannot be used; trying again would not help."""

  def __str__(self) -> str:
    return f"{self.strerror} ({self.filename})"


class FailedError(UnreachableError, RunError):
  """A bucket cannot be used now."""

  def __str__(self) -> str:
    return f"{self.strerror} ({self.filename})"


def as_os_error(error: Exception, reason: Reason | None, url: str, who: str) -> OSError:
  """The OSError for what a library raised; its `strerror` says what to do."""
  detail = " ".join(str(error).split())[:300]
  match reason:
    case Reason.MISSING:
      return FileNotFoundError(errno.ENOENT, "There is no such object", url)
    case Reason.CHANGED:
      return FileExistsError(errno.EEXIST, "Another process has written it", url)
    case Reason.NO_BUCKET:
      bucket = "/".join(url.split("/")[:3])
      return RefusedError(
        errno.ENXIO, f"there is no bucket {bucket}: make it, or correct its name", url
      )
    case Reason.NO_CREDENTIALS:
      return RefusedError(errno.EACCES, f"there are no valid credentials: {who} [{detail}]", url)
    case Reason.CLOCK:
      return RefusedError(
        errno.EACCES,
        f"the clock of this machine is wrong, so it is refused: set it [{detail}]",
        url,
      )
    case Reason.FORBIDDEN:
      return RefusedError(
        errno.EACCES,
        "permission denied: the account needs to list, read, write and delete the objects of the "
        f"bucket [{detail}]",
        url,
      )
    case Reason.QUOTA:
      return FailedError(errno.EDQUOT, f"a quota is used up: raise it, or wait [{detail}]", url)
    case Reason.PASSING:
      return FailedError(errno.EIO, f"the bucket does not answer as it should [{detail}]", url)
  return FailedError(errno.EIO, f"{type(error).__name__}: {detail}", url)
