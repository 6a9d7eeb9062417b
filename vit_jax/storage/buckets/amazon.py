"""s3://, by Amazon's own library; AWS_ENDPOINT_URL_S3 names another server than Amazon's."""

import email.utils
import functools
import time

from vit_jax.process.errors import ConfigError
from vit_jax.storage.buckets.bucket import storage
from vit_jax.storage.buckets.client import WORKERS
from vit_jax.storage.buckets.direct import Direct
from vit_jax.storage.buckets.objects import NEW, Found, Reason, passing

_CODES = {
  "NoSuchBucket": Reason.NO_BUCKET,
  "NoSuchKey": Reason.MISSING,
  "NotFound": Reason.MISSING,
  "404": Reason.MISSING,
  "PreconditionFailed": Reason.CHANGED,
  "412": Reason.CHANGED,
  "InvalidAccessKeyId": Reason.NO_CREDENTIALS,
  "SignatureDoesNotMatch": Reason.NO_CREDENTIALS,
  "ExpiredToken": Reason.NO_CREDENTIALS,
  "InvalidToken": Reason.NO_CREDENTIALS,
  "401": Reason.NO_CREDENTIALS,
  "RequestTimeTooSkewed": Reason.CLOCK,
  "AccessDenied": Reason.FORBIDDEN,
  "403": Reason.FORBIDDEN,
  "ServiceQuotaExceeded": Reason.QUOTA,
  "QuotaExceeded": Reason.QUOTA,
}
_SECONDS = 600  # for which a signed address can be used
_SKEW = 900  # seconds that the clocks of S3 and of who asks it may differ by


class _Amazon:
  """`Objects` of S3; the version is the ETag, which differs with the content."""

  who = (
    "run `aws configure`, set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the machine a "
    "role"
  )

  @functools.cached_property
  def _client(self):
    try:
      import boto3
      from botocore.config import Config
    except ImportError as error:
      raise ConfigError(
        f"s3:// needs the library boto3: pip install '.[buckets]' ({error})."
      ) from error
    once = {"total_max_attempts": 1}
    config = Config(
      retries=once,
      connect_timeout=5,
      read_timeout=30,
      max_pool_connections=WORKERS,
      signature_version="s3v4",  # of addresses too, where the default is an older one
    )
    return boto3.session.Session().client("s3", config=config)

  def stat(self, bucket, key) -> Found:
    answer = self._client.head_object(Bucket=bucket, Key=key)
    return Found(key, answer["ContentLength"], answer["ETag"])

  def read(self, bucket, found, start, stop) -> bytes:
    part, version = f"bytes={start}-{stop - 1}", found.version
    answer = self._client.get_object(Bucket=bucket, Key=found.key, Range=part, IfMatch=version)
    return answer["Body"].read()

  def read_direct(self, bucket, found, start, stop) -> bytes | None:
    at = {"Bucket": bucket, "Key": found.key}
    url = self._client.generate_presigned_url("get_object", Params=at, ExpiresIn=_SECONDS)
    headers = {"Range": f"bytes={start}-{stop - 1}", "If-Match": found.version}
    return self._connections.read(url, headers, stop - start)

  @functools.cached_property
  def _connections(self) -> Direct:
    return Direct()

  def write(self, bucket, key, content, expected) -> str:
    conditions = {None: {}, NEW: {"IfNoneMatch": "*"}}
    condition = conditions.get(expected, {"IfMatch": expected})
    return self._client.put_object(Bucket=bucket, Key=key, Body=content, **condition)["ETag"]

  def upload(self, bucket, key, path):
    with open(path, "rb") as file:
      self._client.put_object(Bucket=bucket, Key=key, Body=file)

  def list(self, bucket, prefix, page, *, deep) -> tuple[list[Found], list[str], str]:
    options = {} if deep else {"Delimiter": "/"}
    options |= {"ContinuationToken": page} if page else {}
    answer = self._client.list_objects_v2(Bucket=bucket, Prefix=prefix, **options)
    found = [Found(at["Key"], at["Size"], at["ETag"]) for at in answer.get("Contents", ())]
    beginnings = [at["Prefix"] for at in answer.get("CommonPrefixes", ())]
    return found, beginnings, answer.get("NextContinuationToken", "")

  def copy(self, bucket, key, target):
    source = {"Bucket": bucket, "Key": key}
    self._client.copy_object(Bucket=bucket, Key=target, CopySource=source)

  def delete(self, bucket, key):
    self._client.delete_object(Bucket=bucket, Key=key)

  def reason(self, error) -> Reason | None:
    import urllib3
    from botocore import exceptions as boto
    from botocore.parsers import ResponseParserError  # of an answer that was cut short

    if isinstance(error, boto.ClientError):
      answer = error.response.get("ResponseMetadata", {})
      if passing(answer.get("HTTPStatusCode", 0)):
        return Reason.PASSING
      reason = _CODES.get(error.response["Error"].get("Code"))
      skewed = reason is Reason.FORBIDDEN and _skew(answer.get("HTTPHeaders", {})) > _SKEW
      return Reason.CLOCK if skewed else reason
    kinds = {
      Reason.NO_CREDENTIALS: (
        *(boto.NoCredentialsError, boto.PartialCredentialsError, boto.TokenRetrievalError),
        *(boto.CredentialRetrievalError, boto.ProfileNotFound),
      ),
      Reason.PASSING: (
        *(boto.HTTPClientError, boto.IncompleteReadError, boto.FlexibleChecksumError),
        *(boto.ConnectionError, ResponseParserError, urllib3.exceptions.HTTPError),
      ),
    }
    return next((reason for reason, kind in kinds.items() if isinstance(error, kind)), None)


def _skew(headers) -> float:
  """Seconds between the clocks of this machine and of the server; an answer to HEAD has no more."""
  try:
    return abs(email.utils.parsedate_to_datetime(headers["date"]).timestamp() - time.time())
  except (KeyError, ValueError):
    return 0.0


AMAZON = storage(_Amazon())
