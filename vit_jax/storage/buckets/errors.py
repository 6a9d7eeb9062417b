"""What the errors of obstore mean, which are those of three services."""

import enum
import errno
import re

from obstore import exceptions

from vit_jax.process.errors import ConfigError, RunError
from vit_jax.storage.base import UnreachableError

_CODES = {
  "NoSuchBucket": "NO_BUCKET",
  "InvalidAccessKeyId": "NO_CREDENTIALS",
  "SignatureDoesNotMatch": "NO_CREDENTIALS",
  "ExpiredToken": "NO_CREDENTIALS",
  "InvalidToken": "NO_CREDENTIALS",
  "RequestTimeTooSkewed": "CLOCK",
  "ServiceQuotaExceeded": "QUOTA",
  "QuotaExceeded": "QUOTA",
  "quotaExceeded": "QUOTA",
  "dailyLimitExceeded": "QUOTA",
  "storageQuotaExceeded": "QUOTA",
  "rateLimitExceeded": "PASSING",
  "userRateLimitExceeded": "PASSING",
  "backendError": "PASSING",
}
_STATUS = re.compile(r"status code: (\d{3})")
_TOKEN = "169.254."  # where a machine of a cloud asks for its credentials
_KEY = re.compile('path "(.*?)"', re.IGNORECASE)


class Reason(enum.Enum):
  """Why a request failed."""

  MISSING = enum.auto()  # there is no such object
  CHANGED = enum.auto()  # the object has another version than the expected one
  NO_BUCKET = enum.auto()
  NO_CREDENTIALS = enum.auto()
  NO_TOKEN = enum.auto()  # who gives credentials did not give any
  NO_PATH = enum.auto()  # a key that no path has
  REGION = enum.auto()
  CLOCK = enum.auto()  # the service and this machine disagree about the time
  FORBIDDEN = enum.auto()
  QUOTA = enum.auto()
  PASSING = enum.auto()  # it may succeed when it is tried again


def reason(error: Exception) -> Reason | None:
  """Why a request failed; None: that is not known."""
  text = str(error).partition("\n\nDebug source")[0]
  found = _STATUS.search(text)
  status = int(found[1]) if found else 0
  if status >= 500 or status in (408, 409, 429):
    return Reason.PASSING
  for code, name in _CODES.items():
    if re.search(rf"\b{code}\b", text):
      return Reason[name]
  if _TOKEN in text or "token request" in text or "credential" in text.lower():
    return Reason.NO_TOKEN
  if "incorrectly configured region" in text:
    return Reason.REGION
  kinds = (
    (FileNotFoundError, Reason.MISSING),
    ((exceptions.AlreadyExistsError, exceptions.PreconditionError), Reason.CHANGED),
    ((exceptions.InvalidPathError, ValueError), Reason.NO_PATH),
    (exceptions.UnauthenticatedError, Reason.NO_CREDENTIALS),
    (exceptions.PermissionDeniedError, Reason.FORBIDDEN),
  )
  for kind, why in kinds:
    if isinstance(error, kind):
      return why
  by_status = {401: Reason.NO_CREDENTIALS, 403: Reason.FORBIDDEN, 404: Reason.MISSING}
  if status:
    return by_status.get(status, Reason.CHANGED if status in (412, 416) else None)
  return Reason.PASSING if isinstance(error, exceptions.BaseError) else None


class RefusedError(UnreachableError, ConfigError):
  """A bucket cannot be used; trying again would not help."""

  def __str__(self) -> str:
    return f"{self.strerror} ({self.filename})"


class FailedError(UnreachableError, RunError):
  """A bucket cannot be used now."""

  def __str__(self) -> str:
    return f"{self.strerror} ({self.filename})"


def as_os_error(error: Exception, why: Reason | None, url: str, who: str) -> OSError:
  """The OSError for what obstore raised; its `strerror` says what to do.

  Args:
    error: obstore's.
    why: its reason.
    url: of what was asked for.
    who: how to get credentials of the service, in a few words.
  """
  detail = " ".join(str(error).partition("\n\nDebug source")[0].split())[:300]
  bucket = "/".join(url.split("/")[:3])
  match why:
    case Reason.MISSING:
      return FileNotFoundError(errno.ENOENT, "There is no such object", url)
    case Reason.CHANGED:
      return FileExistsError(errno.EEXIST, "Another process has written it", url)
  credentials = errno.EACCES, f"there are no valid credentials: {who} [{detail}]"
  refused = {
    Reason.NO_CREDENTIALS: credentials,
    Reason.NO_TOKEN: credentials,
    Reason.NO_BUCKET: (errno.ENXIO, f"there is no bucket {bucket}: make it, or correct its name"),
    Reason.NO_PATH: (
      errno.EINVAL,
      f'it holds the key "{_key(str(error))}", which is no path: a part of it is empty, "." or '
      '"..", or has a character that cannot be printed; give its objects other keys',
    ),
    Reason.REGION: (
      errno.EINVAL,
      f"{bucket} lies in another region: name it by AWS_REGION [{detail}]",
    ),
    Reason.CLOCK: (
      errno.EACCES,
      f"the clock of this machine is wrong, so it is refused: set it [{detail}]",
    ),
    Reason.FORBIDDEN: (
      errno.EACCES,
      "permission denied: the account needs to list, read, write and delete the objects of the "
      f"bucket [{detail}]",
    ),
  }
  failed = {
    Reason.QUOTA: (errno.EDQUOT, f"a quota is used up: raise it, or wait [{detail}]"),
    Reason.PASSING: (errno.EIO, f"the bucket does not answer as it should [{detail}]"),
  }
  if why in refused:
    return RefusedError(*refused[why], url)
  return FailedError(*failed.get(why, (errno.EIO, f"{type(error).__name__}: {detail}")), url)


def _key(text: str) -> str:
  """The key that obstore names; unusual characters are escaped."""
  found = _KEY.search(text)
  return (found[1] if found else text)[:100].encode("unicode_escape").decode()
