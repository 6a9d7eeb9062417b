"""Where buckets are, by the variables of the environment, and what obstore's errors mean."""

import os
import subprocess
import sys

import boto3
import pytest
from obstore import exceptions

from tests import buckets
from vit_jax.extras.buckets import client, errors, services
from vit_jax.extras.buckets.errors import Reason
from vit_jax.process.errors import ConfigError
from vit_jax.storage import files
from vit_jax.storage.paths import path_of

URL = f"s3://{buckets.BUCKET}/a"
KEYS = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"
GONE = dict(STORAGE_EMULATOR_HOST=None, GOOGLE_APPLICATION_CREDENTIALS="/no/such")


@pytest.fixture(scope="module")
def amazon():
  with buckets.served("s3") as proxy:
    yield proxy


@pytest.fixture
def stores(amazon):
  """Stores are made anew in a test, and after it."""
  made = services.AMAZON._stores, services.GOOGLE._stores
  for some in made:
    some.clear()
  yield
  for some in made:
    some.clear()


@pytest.fixture
def profile(stores, tmp_path, monkeypatch):
  """Credentials as `aws configure` writes them, and no others."""
  for name in KEYS:
    monkeypatch.delenv(name)
  (tmp_path / "credentials").write_text(
    "[default]\naws_access_key_id=name\naws_secret_access_key=secret\n"
  )
  monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
  monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))


def test_credentials_of_aws_configure_are_read_by_boto3(profile, monkeypatch):
  files.write_text(path_of(URL), "content")
  assert files.read_bytes(path_of(URL), most=9) == b"content"
  services.AMAZON._stores.clear()
  monkeypatch.setitem(sys.modules, "boto3", None)
  monkeypatch.delitem(sys.modules, "obstore.auth.boto3")
  with pytest.raises(ConfigError, match="are read by the library boto3: pip install boto3"):
    files.exists(path_of(URL))


def test_a_bucket_that_everybody_may_read_needs_no_credentials(stores, monkeypatch):
  files.write_text(path_of(URL), "content")
  boto3.client("s3").put_object_acl(Bucket=buckets.BUCKET, Key="a", ACL="public-read")
  services.AMAZON._stores.clear()
  for name in KEYS:
    monkeypatch.delenv(name)
  monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
  assert files.read_bytes(path_of(URL), most=9) == b"content"
  assert files.kvstore(path_of(URL))["aws_credentials"] == {"type": "anonymous"}


def test_files_and_arrays_go_to_the_same_server(monkeypatch):
  monkeypatch.setenv("STORAGE_EMULATOR_HOST", "localhost:1")
  monkeypatch.setenv("TENSORSTORE_GCS_HTTP_URL", "http://localhost:1")
  known = {"driver": "gcs", "bucket": "bucket", "path": "a/b/"}
  assert files.kvstore(path_of("gs://bucket/a/b")) == known
  for url in ("http://localhost:2", ""):
    monkeypatch.setenv("TENSORSTORE_GCS_HTTP_URL", url)
    with pytest.raises(ConfigError, match="give both the same URL"):
      files.kvstore(path_of("gs://bucket/a/b"))


def test_a_bucket_without_obstore_is_refused_in_one_sentence():
  code = (
    "import sys; sys.modules['obstore'] = None\n"
    "from vit_jax.storage import files, paths\n"
    "try: files.exists(paths.path_of('gs://bucket/a'))\n"
    "except Exception as error: print(type(error).__name__, error)"
  )
  said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
  assert said.stdout.startswith("ConfigError gs:// and s3:// need the library obstore: pip install")


def of_status(number, code="", kind=exceptions.GenericError, key="a", url="https://b/a"):
  """An error as obstore writes it: the key and the URL come before what the server says."""
  body = f"<Error><Code>{code}</Code><Message>words</Message></Error>" if code else ""
  return kind(
    f"Object at location {key} failed: Error performing GET {url} in 3.1ms - "
    f"Server returned non-2xx status code: {number} Words: {body}\n\nDebug source:\nNotFound"
  )


def generic(said, url="https://b/a", times="1ms"):
  """An error of a request that is of no object."""
  asked = f"Generic S3 error: Error performing GET {url} in {times}"
  return exceptions.GenericError(f"{asked} - {said}")


RETRIED = "1.2s, after 4 retries, max_retries: 4, retry_timeout: 60s "


ODD = "credential token request 169.254. NoSuchBucket status code: 500 <Code>ExpiredToken</Code>"


@pytest.mark.parametrize(
  ("error", "why"),
  [
    *((of_status(number), Reason.PASSING) for number in (408, 409, 429, 500, 503, 507)),
    (of_status(401), Reason.NO_CREDENTIALS),
    (of_status(403), Reason.FORBIDDEN),
    (of_status(403, "ExpiredToken"), Reason.NO_CREDENTIALS),
    (of_status(403, "RequestTimeTooSkewed"), Reason.CLOCK),
    (of_status(403, "InsufficientQuota"), Reason.QUOTA),
    (of_status(404, "NoSuchBucket"), Reason.NO_BUCKET),
    (of_status(400, "AuthorizationHeaderMalformed"), Reason.REGION),
    (of_status(400, "RequestTimeout"), Reason.PASSING),
    (of_status(416), Reason.CHANGED),
    (of_status(418), None),
    (of_status(404, kind=FileNotFoundError, key=ODD), Reason.MISSING),
    (of_status(404, kind=FileNotFoundError, url="https://credentials/169.254."), Reason.MISSING),
    (of_status(412, kind=exceptions.PreconditionError, key=ODD), Reason.CHANGED),
    (of_status(412, kind=exceptions.AlreadyExistsError), Reason.CHANGED),
    (of_status(409, kind=exceptions.AlreadyExistsError), Reason.PASSING),
    (of_status(401, kind=exceptions.UnauthenticatedError), Reason.NO_CREDENTIALS),
    (of_status(403, kind=exceptions.PermissionDeniedError, key=ODD), Reason.FORBIDDEN),
    (of_status(503, url="http://169.254.169.254/latest/api/token"), Reason.NO_TOKEN),
    (exceptions.GenericError("HTTP error: error sending request"), Reason.PASSING),
    (generic("Server returned non-2xx status code: 503 ", "https://credential/"), Reason.PASSING),
    (exceptions.GenericError("Generic External AWS credential provider error: x"), Reason.NO_TOKEN),
    (exceptions.GenericError("Generic GCS error: Error performing token request"), Reason.NO_TOKEN),
    (generic("HTTP error", "http://169.254.169.254/latest", times=RETRIED), Reason.NO_TOKEN),
    (
      generic(
        "Server returned non-2xx status code: 400 "
        "<Error><Code>AuthorizationHeaderMalformed</Code></Error>",
        times=RETRIED,
      ),
      Reason.REGION,
    ),
    (
      generic("Received redirect without LOCATION: an incorrectly configured region"),
      Reason.REGION,
    ),
    (exceptions.InvalidPathError('Error parsing Path "a/../b"'), Reason.NO_PATH),
    (KeyError("a"), None),
  ],
)
def test_what_an_error_means(error, why):
  assert errors.reason(error) is why
  told = errors.as_os_error(error, why, "s3://bucket/key", "log in")
  assert isinstance(told, OSError)
  assert "\n" not in str(told)


@pytest.mark.parametrize(
  ("url", "variables", "words"),
  [
    (URL, dict(AWS_SKIP_SIGNATURE="perhaps"), "^The bucket bucket cannot be used: "),
    (URL, dict(AWS_SECRET_ACCESS_KEY=None), "^The bucket bucket cannot be used: "),
    (URL, dict.fromkeys(KEYS) | dict(AWS_PROFILE="none"), r"cannot be read: .* profile \(none"),
    ("gs://bucket/a", GONE, r"^The bucket bucket cannot be used: .*/no/such"),
  ],
)
def test_a_variable_that_cannot_be_used_is_one_sentence(stores, monkeypatch, url, variables, words):
  for name, value in variables.items():
    monkeypatch.setenv(name, value or "")
    if value is None:
      monkeypatch.delenv(name)
  with pytest.raises(ConfigError, match=words) as error:
    files.exists(path_of(url))
  assert "\n" not in str(error.value)


def test_a_file_that_only_names_a_region_gives_no_credentials(tmp_path, monkeypatch):
  for name in (*KEYS, "AWS_PROFILE"):
    monkeypatch.delenv(name, raising=False)
  monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
  monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
  (tmp_path / "config").write_text("[default]\nregion=eu-west-1\n")
  assert not services._of_profile()
  (tmp_path / "config").write_text("[default]\nsso_session=a\n")
  assert services._of_profile()
  monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://x")
  assert not services._of_profile()


def test_who_gave_credentials_once_is_asked_again(stores, monkeypatch):
  files.write_text(path_of(URL), "content")
  monkeypatch.setattr(client, "PAUSES", (0.01,))
  lost = exceptions.GenericError("Generic S3 error: Error performing token request: away")
  asked = []

  def ask(_):
    asked.append(1)
    raise lost

  with pytest.raises(errors.FailedError, match="does not answer"):
    services.AMAZON.request(path_of(URL), ask)
  assert len(asked) == 2
  monkeypatch.setattr(services.AMAZON, "_answered", False)
  with pytest.raises(errors.RefusedError, match="no valid credentials"):
    services.AMAZON.request(path_of(URL), ask)
  assert len(asked) == 3


def test_a_large_file_is_sent_in_parts(stores, tmp_path, amazon):
  content = os.urandom(client.IN_PARTS + 10)
  (tmp_path / "large").write_bytes(content)
  path = path_of(URL)
  for send in (
    lambda: files.copy(tmp_path / "large", path),
    lambda: files.write_bytes(path, content),
    lambda: files.write_bytes(path, bytearray(content)),  # as a program of StableHLO
  ):
    before = amazon.count
    send()
    assert amazon.count - before >= 4
    assert files.read_bytes(path, most=10**8) == content
    files.remove(path)


def test_a_key_is_named_and_escaped():
  error = exceptions.InvalidPathError('Error parsing Path "a/../\x1b[2Jb": illegal\n\nDebug source')
  told = str(errors.as_os_error(error, Reason.NO_PATH, "gs://bucket/a", ""))
  assert r'"a/../\x1b[2Jb", which is no path' in told
