"""Where the buckets of a service are, for obstore and for TensorStore: by its own variables."""

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

from vit_jax.storage.buckets.bucket import storage

_ONCE = {"max_retries": 0}  # requests are made again by `client`, for all services alike
_TRUE = "1", "true", "yes", "on"


class Service(Protocol):
  """A service of buckets.

  Attributes:
    who: how to get credentials, in a few words.
  """

  who: str

  def store(self, bucket: str) -> ObjectStore:
    """A bucket for obstore.

    Raises:
      ConfigError: what the variables of the environment say cannot be used.
    """

  def kvstore(self, bucket: str, path: str) -> dict:
    """A folder of a bucket for TensorStore."""


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

  def store(self, bucket) -> ObjectStore:
    address = self._address()
    if not address:
      return GCSStore(bucket, client_options=_options(""), retry_config=_ONCE)
    nobody = {"gcs_base_url": address, "disable_oauth": True, "client_email": ""}
    account = json.dumps(nobody | {"private_key": "", "private_key_id": ""})
    config = {"service_account_key": account}
    return GCSStore(bucket, config=config, client_options=_options(address), retry_config=_ONCE)

  def kvstore(self, bucket, path) -> dict:
    address, of_arrays = self._address(), os.environ.get("TENSORSTORE_GCS_HTTP_URL", "")
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
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL", "")

  def store(self, bucket) -> ObjectStore:
    address = self._address()
    config = {"endpoint": address} if address else {}
    options = dict(client_options=_options(address), retry_config=_ONCE)
    if _of_profile():
      options["credential_provider"] = _by_boto3()
    return S3Store(bucket, config=config, **options)

  def kvstore(self, bucket, path) -> dict:
    found: dict = {"driver": "s3", "bucket": bucket, "path": path}
    if address := self._address():
      found["endpoint"] = address
    if region := os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"):
      found["aws_region"] = region
    if os.environ.get("AWS_SKIP_SIGNATURE", "").lower() in _TRUE:
      found["aws_credentials"] = {"type": "anonymous"}
    elif os.environ.get("AWS_ACCESS_KEY_ID"):
      found["aws_credentials"] = {"type": "environment"}
    return found


def _of_profile() -> bool:
  """Whether credentials are those of `aws configure`, which obstore does not read."""
  named = "AWS_ACCESS_KEY_ID", "AWS_SKIP_SIGNATURE", "AWS_WEB_IDENTITY_TOKEN_FILE"
  if any(os.environ.get(name) for name in named):
    return False
  places = {"AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials", "AWS_CONFIG_FILE": "~/.aws/config"}
  files = (os.environ.get(name, place) for name, place in places.items())
  return "AWS_PROFILE" in os.environ or any(pathlib.Path(f).expanduser().is_file() for f in files)


def _by_boto3():
  try:
    from obstore.auth.boto3 import Boto3CredentialProvider
  except ImportError as error:
    raise ConfigError(
      f"Credentials of `aws configure` are read by the library boto3: pip install boto3 ({error})."
    ) from error
  try:
    return Boto3CredentialProvider()
  except Exception as error:  # of botocore, which has no common one: a profile that is not there...
    raise ConfigError(f"The credentials of `aws configure` cannot be read: {error}.") from error


GOOGLE, AMAZON = storage(_Google()), storage(_Amazon())
