"""gs://, by Google's own library; STORAGE_EMULATOR_HOST names another server than Google's."""

import contextlib
import functools
import re
import urllib.parse

from vit_jax.process.errors import ConfigError
from vit_jax.storage.buckets.bucket import storage
from vit_jax.storage.buckets.direct import Direct
from vit_jax.storage.buckets.objects import Found, Reason, passing

TIMEOUT = (5, 30)  # seconds to connect, and to wait for the next bytes
ONCE = {"retry": None, "timeout": TIMEOUT}
FIELDS = "items(name,size,generation),prefixes,nextPageToken"
_PASSING_403 = {"rateLimitExceeded", "userRateLimitExceeded", "backendError"}
_QUOTA_403 = {"quotaExceeded", "dailyLimitExceeded", "storageQuotaExceeded"}


class _Google:
  """`Objects` of Google Cloud Storage; the version is the generation."""

  who = (
    "run `gcloud auth application-default login`, let GOOGLE_APPLICATION_CREDENTIALS name a key "
    "file, or give the VM a service account"
  )

  @functools.cached_property
  def _client(self):
    try:
      from google.cloud.storage import Client  # takes most of a second
    except ImportError as error:
      raise ConfigError(
        f"gs:// needs the library google-cloud-storage: pip install '.[buckets]' ({error})."
      ) from error
    return Client()

  def _blob(self, bucket, key, **options):
    return self._client.bucket(bucket).blob(key, **options)

  def stat(self, bucket, key) -> Found:
    blob = self._blob(bucket, key)
    blob.reload(**ONCE)
    return Found(key, blob.size, str(blob.generation))

  def read(self, bucket, found, start, stop) -> bytes:
    generation = int(found.version)
    return self._blob(bucket, found.key, generation=generation).download_as_bytes(
      start=start, end=stop - 1, raw_download=True, checksum=None, **ONCE
    )

  def read_direct(self, bucket, found, start, stop) -> bytes | None:
    url = (
      f"{self._client.api_endpoint}/download/storage/v1/b/{bucket}/o/"
      f"{urllib.parse.quote(found.key, safe='')}?alt=media&generation={found.version}"
    )
    # As it is stored: without gzip, the service would unpack an object that was packed.
    headers = {"Range": f"bytes={start}-{stop - 1}", "Accept-Encoding": "gzip"}
    self._client._credentials.before_request(self._renewal, "GET", url, headers)
    return self._connections.read(url, headers, stop - start)

  @functools.cached_property
  def _renewal(self):
    """By which credentials that run out are renewed."""
    from google.auth.transport.requests import Request

    return Request()

  @functools.cached_property
  def _connections(self) -> Direct:
    return Direct()

  def write(self, bucket, key, content, expected) -> str:
    blob = self._blob(bucket, key)
    match = None if expected is None else int(expected or 0)
    blob.upload_from_string(content, _TYPE, if_generation_match=match, **ONCE)
    return str(blob.generation)

  def upload(self, bucket, key, path):
    self._blob(bucket, key).upload_from_filename(path, _TYPE, **ONCE)

  def list(self, bucket, prefix, page, *, deep) -> tuple[list[Found], list[str], str]:
    options = dict(prefix=prefix, delimiter=None if deep else "/", page_token=page or None)
    blobs = self._client.list_blobs(bucket, fields=FIELDS, **options, **ONCE)
    objects = next(blobs.pages, ())
    found = [Found(blob.name, blob.size, str(blob.generation)) for blob in objects]
    return found, list(blobs.prefixes), blobs.next_page_token or ""

  def copy(self, bucket, key, target):
    source, token = self._blob(bucket, key), None
    copy = self._blob(bucket, target)
    while True:
      token, _, _ = copy.rewrite(source, token=token, **ONCE)
      if token is None:
        return

  def delete(self, bucket, key):
    from google.cloud.exceptions import NotFound

    try:
      self._blob(bucket, key).delete(**ONCE)
    except NotFound:
      return

  def reason(self, error) -> Reason | None:
    import requests
    import urllib3
    from google.api_core import exceptions as api
    from google.auth import exceptions as auth
    from google.cloud.storage import exceptions as data

    kinds = {
      Reason.CHANGED: api.PreconditionFailed,
      Reason.NO_CREDENTIALS: (auth.DefaultCredentialsError, auth.RefreshError, api.Unauthorized),
      Reason.PASSING: (
        *(auth.TransportError, requests.RequestException, urllib3.exceptions.HTTPError),
        *(data.DataCorruption, data.InvalidResponse),
      ),
    }
    if isinstance(error, api.NotFound):
      return Reason.MISSING if re.search(r"/o/[^ ?]", str(error)) else Reason.NO_BUCKET
    if isinstance(error, api.Forbidden):
      return _of_forbidden(error)
    if isinstance(error, auth.RefreshError) and _may_pass(error, auth.TransportError):
      return Reason.PASSING
    if passing(getattr(error, "code", None) or 0):
      return Reason.PASSING
    return next((reason for reason, kind in kinds.items() if isinstance(error, kind)), None)


_TYPE = "application/octet-stream"


def _may_pass(error, unreachable: type[Exception]) -> bool:
  """Whether new credentials could not be had now, because their server did not answer well."""
  return error.retryable or any(isinstance(cause, unreachable) for cause in error.args)


def _of_forbidden(error):
  entries = error.errors
  if not entries:  # of a download or an upload
    with contextlib.suppress(AttributeError, ValueError, KeyError, TypeError):
      entries = error.response.json()["error"]["errors"]
  reasons = {entry.get("reason") for entry in entries if isinstance(entry, dict)}
  if reasons & _PASSING_403:
    return Reason.PASSING
  return Reason.QUOTA if reasons & _QUOTA_403 else Reason.FORBIDDEN


GOOGLE = storage(_Google())
