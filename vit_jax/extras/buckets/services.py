"""Where the buckets of a service are, for obstore and for TensorStore: by its own variables."""

import datetime
import json
import os
import pathlib
from typing import Protocol

from vit_jax.process.errors import ConfigError

try:
  from obstore.store import GCSStore, ObjectStore, S3Store
except ImportError as error:
  raise ConfigError(
    f"gs:// and s3:// need the library obstore: pip install '.[buckets]' ({error})."
  ) from error

from vit_jax.extras.buckets.bucket import storage

_TTL = datetime.timedelta(minutes=10)  # botocore gives credentials that last a quarter of an hour
# What a profile has that gives credentials.
_SOURCES = "aws_access_key_id", "sso_", "role_arn", "credential_process", "web_identity_token_file"


class Service(Protocol):
  """A service of buckets.

  Attributes:
    who: how to get credentials, in a few words.
  """

  who: str

  def store(self, bucket: str, retries: int) -> ObjectStore:
    """A bucket for obstore, which makes a request that fails again so many times.

    Raises:
      ConfigError: what the variables of the environment say cannot be used.
    """

  def kvstore(self, bucket: str, path: str) -> dict:
    """A folder of a bucket for TensorStore."""


def _again(retries: int) -> dict:
  """How obstore makes a request again that fails."""
  seconds = lambda count: datetime.timedelta(seconds=count)
  backoff = {"init_backoff": seconds(0.2), "max_backoff": seconds(2), "base": 2}
  return {"max_retries": retries, "backoff": backoff, "retry_timeout": seconds(60)}


def _options(address: str) -> dict:
  """Of a client; a server that is named by http:// is asked by HTTP."""
  return {
    "allow_http": address.startswith("http://"),
    "connect_timeout": "5s",
    "read_timeout": "30s",
    "timeout": "1h",  # of a whole request
  }


class _Google:
  """gs://; STORAGE_EMULATOR_HOST names another server than Google's."""

  who = (
    "run `gcloud auth application-default login`, let GOOGLE_APPLICATION_CREDENTIALS name a key "
    "file, or give the VM a service account"
  )

  def _address(self) -> str:
    address = os.environ.get("STORAGE_EMULATOR_HOST", "")
    return address if not address or "://" in address else f"http://{address}"

  def store(self, bucket, retries) -> ObjectStore:
    address, retry = self._address(), _again(retries)
    options = _options(address)
    if not address:
      return GCSStore(bucket, client_options=options, retry_config=retry)
    nobody = {"gcs_base_url": address, "disable_oauth": True, "client_email": ""}
    account = json.dumps(nobody | {"private_key": "", "private_key_id": ""})
    config = {"service_account_key": account}
    return GCSStore(bucket, config=config, client_options=options, retry_config=retry)

  def kvstore(self, bucket, path) -> dict:
    address = self._address() or os.environ.get("GOOGLE_BASE_URL", "")
    of_arrays = os.environ.get("TENSORSTORE_GCS_HTTP_URL", "")
    if address != of_arrays:
      raise ConfigError(
        f"STORAGE_EMULATOR_HOST names the server {address or 'of Google'}, and "
        f"TENSORSTORE_GCS_HTTP_URL {of_arrays or 'that of Google'}, where the arrays of "
        "checkpoints would be; give both the same URL."
      )
    return {"driver": "gcs", "bucket": bucket, "path": path}


class _Amazon:
  """s3://; AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL names another server than Amazon's."""

  who = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, give the machine a role, or run `aws "
    "configure` and pip install boto3, which reads what that writes"
  )

  def _address(self) -> str:
    names = "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"
    return next(filter(None, map(os.environ.get, names)), "")

  def store(self, bucket, retries) -> ObjectStore:
    address = self._address()
    # Of one key each, so that a refusal has a status, and servers without bulk deletion do.
    config = {"disable_bulk_delete": True} | ({"endpoint": address} if address else {})
    options = dict(client_options=_options(address), retry_config=_again(retries))
    if _of_profile():
      options["credential_provider"] = _by_boto3()
    return S3Store(bucket, config=config, **options)

  def kvstore(self, bucket, path) -> dict:
    found: dict = {"driver": "s3", "bucket": bucket, "path": path}
    if address := self._address():
      found["endpoint"] = address
    profile = _by_boto3().config.get("region") if _of_profile() else None
    names = "AWS_REGION", "AWS_DEFAULT_REGION"
    given = next(filter(None, map(os.environ.get, names)), profile)
    found["aws_region"] = given or "us-east-1"  # as obstore; TensorStore would ask, and only once
    if _anonymous():
      found["aws_credentials"] = {"type": "anonymous"}
    elif os.environ.get("AWS_ACCESS_KEY_ID"):
      found["aws_credentials"] = {"type": "environment"}
    return found


def _anonymous() -> bool:
  return os.environ.get("AWS_SKIP_SIGNATURE", "").lower() in ("1", "true", "yes", "y", "on")


def _of_profile() -> bool:
  """Whether credentials are those of `aws configure`, which obstore does not read."""
  named = (
    *("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE"),
    *("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"),
  )
  if _anonymous() or any(os.environ.get(name) for name in named):
    return False
  places = {"AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials", "AWS_CONFIG_FILE": "~/.aws/config"}
  paths = (pathlib.Path(os.environ.get(name, p)).expanduser() for name, p in places.items())
  texts = [path.read_text(errors="replace") for path in paths if path.is_file()]
  return "AWS_PROFILE" in os.environ or any(word in text for text in texts for word in _SOURCES)


def _by_boto3():
  try:
    from obstore.auth.boto3 import Boto3CredentialProvider
  except ImportError as error:
    raise ConfigError(
      f"Credentials of `aws configure` are read by the library boto3: pip install boto3 ({error})."
    ) from error
  try:
    return Boto3CredentialProvider(ttl=_TTL)
  except Exception as error:  # of botocore, which has no common one: a profile that is not there...
    raise ConfigError(f"The credentials of `aws configure` cannot be read: {error}.") from error


GOOGLE, AMAZON = storage(_Google()), storage(_Amazon())
