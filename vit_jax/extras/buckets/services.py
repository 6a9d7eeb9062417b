"""Configures obstore and TensorStore for each service, from its environment variables."""

import datetime
import json
import os
import pathlib

from vit_jax.process.errors import ConfigError

try:
  from obstore.store import GCSStore, ObjectStore, S3Store
except ImportError as error:
  raise ConfigError(
    f"gs:// and s3:// need the library obstore: pip install '.[buckets]' ({error})."
  ) from error

from vit_jax.extras.buckets.bucket import storage

_TTL = datetime.timedelta(minutes=10)  # botocore gives credentials that last 15 minutes
# Keys of a profile that gives credentials.
_SOURCES = "aws_access_key_id", "sso_", "role_arn", "credential_process", "web_identity_token_file"


def _again(retries: int) -> dict:
  """How obstore retries a failed request."""
  backoff = {
    "init_backoff": datetime.timedelta(seconds=0.2),
    "max_backoff": datetime.timedelta(seconds=2),
    "base": 2,
  }
  timeout = datetime.timedelta(seconds=60)
  return {"max_retries": retries, "backoff": backoff, "retry_timeout": timeout}


def _options(address: str) -> dict:
  """Options of an HTTP client; plain HTTP is allowed only for an http:// address."""
  return {
    "allow_http": address.startswith("http://"),
    "connect_timeout": "5s",
    "read_timeout": "30s",
    "timeout": "1h",  # of a whole request
  }


class _Google:
  """gs://; STORAGE_EMULATOR_HOST names a server to use instead of Google's."""

  who = (
    "run `gcloud auth application-default login`, let GOOGLE_APPLICATION_CREDENTIALS name a key "
    "file, or give the VM a service account"
  )

  def _address(self) -> str:
    address = os.environ.get("STORAGE_EMULATOR_HOST", "")
    if address and "://" not in address:
      return f"http://{address}"
    return address

  def store(self, bucket, retries) -> ObjectStore:
    address = self._address()
    retry = _again(retries)
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
  """s3://; AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL names a server to use instead of Amazon's."""

  who = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, give the machine a role, or run `aws "
    "configure` and pip install boto3, which reads what that writes"
  )

  def _address(self) -> str:
    names = "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"
    return next(filter(None, map(os.environ.get, names)), "")

  def store(self, bucket, retries) -> ObjectStore:
    address = self._address()
    # One key per deletion, so that a refusal has a status, and servers without bulk deletion work.
    config = {"disable_bulk_delete": True}
    if address:
      config["endpoint"] = address
    options = dict(client_options=_options(address), retry_config=_again(retries))
    if _of_profile():
      options["credential_provider"] = _by_boto3()
    return S3Store(bucket, config=config, **options)

  def kvstore(self, bucket, path) -> dict:
    found: dict = {"driver": "s3", "bucket": bucket, "path": path}
    if address := self._address():
      found["endpoint"] = address
    found["aws_region"] = self._region()
    if _anonymous():
      found["aws_credentials"] = {"type": "anonymous"}
    elif os.environ.get("AWS_ACCESS_KEY_ID"):
      found["aws_credentials"] = {"type": "environment"}
    return found

  def _region(self) -> str:
    of_profile = None
    if _of_profile():
      of_profile = _by_boto3().config.get("region")
    names = "AWS_REGION", "AWS_DEFAULT_REGION"
    given = next(filter(None, map(os.environ.get, names)), of_profile)
    return given or "us-east-1"  # as obstore; TensorStore would ask the server, and only once


def _anonymous() -> bool:
  return os.environ.get("AWS_SKIP_SIGNATURE", "").lower() in ("1", "true", "yes", "y", "on")


def _of_profile() -> bool:
  """Whether the credentials come from `aws configure`, which obstore does not read."""
  named = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
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
  except Exception as error:  # such as a missing profile; botocore has no common class of errors
    raise ConfigError(f"The credentials of `aws configure` cannot be read: {error}.") from error


GOOGLE = storage(_Google())
AMAZON = storage(_Amazon())
