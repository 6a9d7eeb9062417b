"""Running the commands as a user does: real processes, their output and exit status."""

import atexit
import concurrent.futures
import functools
import os
import pathlib
import subprocess
import sys

from tests.compiler import KEPT, QUICK
from tests.fork_server import ForkServer

ROOT = pathlib.Path(__file__).parents[1]
MAIN = [sys.executable, "-m", "vit_jax.main"]

USUAL = {"JAX_PLATFORMS": "cpu", **KEPT}
FORKED = ("vit_jax.main", "tests.faults.driver")


def environment(devices=1, **changes):
  """A clean environment with `devices` simulated devices."""
  own = ("JAX_", "XLA_", "PJRT_", "TPU_")  # libtpu itself sets one, where it is imported
  kept = {key: value for key, value in os.environ.items() if not key.startswith(own)}
  flags = f"--xla_force_host_platform_device_count={devices} {QUICK}"
  # With as few threads as cores, simulated devices may wait for one another in two collectives that
  # XLA started in different orders, each holding the thread that the other one needs.
  threads = dict(PJRT_NPROC="16") if devices > 1 else {}
  return kept | threads | USUAL | dict(XLA_FLAGS=flags) | changes


def run(command, *, timeout=300, anew=False, **options):
  """Runs a command from the repository's root to its end.

  The main program, also with a fault in it, is a fork of tests/fork_server.py, which has imported
  it already, unless `anew` asks for a process of its own. Other programs always get one.
  """
  command, env = [str(part) for part in command], environment(**options)
  if command[:2] == MAIN[:2] and command[2] in FORKED and not anew:
    return forked(command, env, timeout)
  return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=timeout)


def forked(command, env, timeout):
  """As subprocess.run, by the fork server."""
  pipes = [os.pipe() for _ in range(2)]
  running = fork_server().start(command[2], command[3:], env, [write for _, write in pipes])
  for _, write in pipes:
    os.close(write)
  with concurrent.futures.ThreadPoolExecutor() as pool:
    texts = [pool.submit(read_all, read) for read, _ in pipes]
    try:
      status = running.wait(timeout)
    finally:
      running.kill()
  return subprocess.CompletedProcess(command, status, *(text.result() for text in texts))


def read_all(descriptor):
  """The text that comes out of a pipe."""
  with os.fdopen(descriptor, encoding="utf-8") as stream:
    return stream.read()


@functools.cache
def fork_server():
  """The fork server of this test process."""
  made = ForkServer(ROOT, environment())
  atexit.register(made.close)
  return made


def start(command, **options):
  """Starts the main program, also with a fault in it, as a fork of tests/fork_server.py.

  Its output is read through `stdout` while it runs.
  """
  _, _, module, *arguments = (str(part) for part in command)
  read, write = os.pipe()
  stdout = os.fdopen(read, encoding="utf-8")
  running = fork_server().start(module, arguments, environment(**options), (write, write), stdout)
  os.close(write)
  return running


def message(result):
  """The one sentence that a program of ours left with, wherever in stderr it stands."""
  (said,) = [line for line in result.stderr.splitlines() if line.startswith("vit_jax: ")]
  return said


def digits(workdir, *overrides):
  """The main job on the digits, small: 40 steps of a tiny model."""
  small = {
    "batch_size": 32,
    "model.depth": 1,
    "model.width": 16,
    "model.mlp_dim": 32,
    "model.heads": 2,
    "duration.steps": 40,
    "schedule.warmup.steps": 4,
    "log_every.steps": 4,
    "evaluate_every.steps": 20,
    "checkpoint.every.steps": 10,
    "report": False,  # its pictures are a quarter of the run
  }
  settings = [f"--config.{key}={value}" for key, value in small.items()]
  return [*MAIN, "--config=configs/vit_digits.py", f"--workdir={workdir}", *settings, *overrides]
