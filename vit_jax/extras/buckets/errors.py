"""Classifies the errors of obstore by their texts, which name keys and URLs before the reason."""

import enum
import errno
import re

from obstore import exceptions

from vit_jax.process.errors import ConfigError, RunError
from vit_jax.storage.base import UnreachableError

MOST = 4_000  # characters of a text that are searched
# The error codes of the services.
_CODES = {
  "NoSuchBucket": "NO_BUCKET",
  "InvalidAccessKeyId": "NO_CREDENTIALS",
  "SignatureDoesNotMatch": "NO_CREDENTIALS",
  "ExpiredToken": "NO_CREDENTIALS",
  "InvalidToken": "NO_CREDENTIALS",
  "AuthorizationHeaderMalformed": "REGION",
  "PermanentRedirect": "REGION",
  "RequestTimeTooSkewed": "CLOCK",
  "InsufficientQuota": "QUOTA",
  "QuotaExceeded": "QUOTA",
  "ServiceQuotaExceeded": "QUOTA",
  "RequestTimeout": "PASSING",
  "NoSuchUpload": "PASSING",  # a multipart upload has ended, but its answer was lost
}
_CLASSES = {
  exceptions.InvalidPathError: "NO_PATH",
  ValueError: "NO_PATH",  # the key of the request
  FileNotFoundError: "MISSING",
  exceptions.AlreadyExistsError: "CHANGED",
  exceptions.PreconditionError: "CHANGED",
  exceptions.UnauthenticatedError: "NO_CREDENTIALS",
  exceptions.PermissionDeniedError: "FORBIDDEN",
}
_STATUSES = {
  401: "NO_CREDENTIALS",
  403: "FORBIDDEN",
  404: "MISSING",
  412: "CHANGED",
  416: "CHANGED",
}
# The answer of the service is at the end of a text, after keys and URLs.
_ANSWER = re.compile(
  r".*Error performing [A-Z]+ (?P<url>\S+) in [^\s,]+(, after \d+ retries, [^<]*?)? +- "
  r"(?P<answer>.*)",
  re.DOTALL,
)
_STATUS = re.compile(r"Server returned non-2xx status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_MESSAGE = re.compile(r"<Message>([^<]*)</Message>")
# The beginnings of texts, before any name.
_TOKEN = re.compile(
  r"Generic (External \w+ credential provider error|\w+ error: Error performing token request|"
  r"\w+ error: [^:]*credential)"
)
_KEY = re.compile('path "(.*?)"', re.IGNORECASE | re.DOTALL)


class Reason(enum.Enum):
  """Why a request failed."""

  MISSING = enum.auto()  # there is no such object
  CHANGED = enum.auto()  # the object has another version than the expected one
  NO_BUCKET = enum.auto()
  NO_CREDENTIALS = enum.auto()
  NO_TOKEN = enum.auto()  # the credential provider gave none
  NO_PATH = enum.auto()  # a key that is not a valid path
  REGION = enum.auto()
  CLOCK = enum.auto()  # the service and this machine disagree about the time
  FORBIDDEN = enum.auto()
  QUOTA = enum.auto()
  PASSING = enum.auto()  # transient: a retry may succeed


def reason(error: Exception) -> Reason | None:
  """Why a request failed; None if not known.

  Keys and buckets may have any name, so the text around them is not searched.
  """
  text = _text(error)
  url = answer = ""
  if found := _ANSWER.fullmatch(text):
    url = found["url"]
    answer = found["answer"]
  if url.startswith("http://169.254.") or _TOKEN.match(text):
    return Reason.NO_TOKEN
  code = _CODE.search(answer)
  if code and code[1] in _CODES:
    return Reason[_CODES[code[1]]]
  if "incorrectly configured region" in answer:
    return Reason.REGION
  status = 0
  if said := _STATUS.match(answer):
    status = int(said[1])
  if status >= 500 or status in (408, 409, 429):
    return Reason.PASSING
  for kind, name in _CLASSES.items():
    if isinstance(error, kind):
      return Reason[name]
  if status in _STATUSES:
    return Reason[_STATUSES[status]]
  if not status and isinstance(error, exceptions.BaseError):
    return Reason.PASSING
  return None


def _text(error: Exception) -> str:
  """The text of an error of obstore, without its debug dump."""
  return str(error).partition("\n\nDebug source")[0][:MOST]


def _detail(error: Exception) -> str:
  """The message of the service, or else of obstore, without anything that may be secret."""
  text = _text(error)
  said = [found[1] for pattern in (_CODE, _MESSAGE) if (found := pattern.search(text))]
  return " ".join((": ".join(said) or text).split())[:300]


class RefusedError(UnreachableError, ConfigError):
  """A bucket cannot be used; trying again would not help."""

  def __str__(self) -> str:
    return f"{self.strerror} ({self.filename})"


class FailedError(UnreachableError, RunError):
  """A bucket cannot be used now."""

  def __str__(self) -> str:
    return f"{self.strerror} ({self.filename})"


def unusable(error: Exception, bucket: str, who: str) -> ConfigError:
  """The error for a bucket that obstore cannot open, such as because of a bad key file."""
  return ConfigError(f"The bucket {bucket} cannot be used: {_detail(error)}; {who}.")


def as_os_error(error: Exception, why: Reason | None, url: str, who: str) -> OSError:
  """The OSError for an error of obstore; its `strerror` says what to do.

  Args:
    error: the error of obstore.
    why: its reason.
    url: the URL of the object or folder.
    who: how to get credentials of the service, in a few words.
  """
  detail = _detail(error)
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
