"""Running the commands as a user does: real processes, their output and exit status."""

import atexit
import functools
import os
import pathlib
import signal
import subprocess
import sys
import threading

from tests.compiler import QUICK
from tests.nursery import Nursery

ROOT = pathlib.Path(__file__).parents[1]
MAIN = [sys.executable, "-m", "vit_jax.main"]

# Compiled programs are kept between the processes of one test session; nothing else is shared.
CACHE = ROOT / ".pytest_cache" / "compiled"
USUAL = dict(JAX_PLATFORMS="cpu", JAX_COMPILATION_CACHE_DIR=str(CACHE))
FORKED = ("vit_jax.main", "tests.faults.driver")


def environment(devices=1, **changes):
  """A clean environment with `devices` simulated devices."""
  own = ("JAX_", "XLA_", "PJRT_")
  kept = {key: value for key, value in os.environ.items() if not key.startswith(own)}
  flags = f"--xla_force_host_platform_device_count={devices} {QUICK}"
  # With as few threads as cores, simulated devices may wait for one another in two collectives that
  # XLA started in different orders, each holding the thread that the other one needs.
  threads = dict(PJRT_NPROC="16") if devices > 1 else {}
  return kept | threads | USUAL | dict(XLA_FLAGS=flags) | changes


def run(command, *, timeout=300, anew=False, **options):
  """Runs a command from the repository's root to its end.

  The main program, also with a fault in it, is a fork of tests/nursery.py, which has everything
  imported; unless it is to be started `anew`, or JAX itself with other settings than usual.
  """
  command, env = [str(part) for part in command], environment(**options)
  if command[:2] == MAIN[:2] and command[2] in FORKED and not anew and jax_settings(env) == USUAL:
    return forked(command, env, timeout)
  return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=timeout)


def forked(command, env, timeout):
  """As subprocess.run, by the nursery."""
  child = nursery().start(command[2], command[3:], env)
  limit = threading.Timer(timeout, os.kill, (child.pid, signal.SIGKILL))
  limit.start()
  status = child.wait()
  limit.cancel()
  return subprocess.CompletedProcess(command, status, *child.communicate())


@functools.cache
def nursery():
  """The nursery of this process."""
  made = Nursery(ROOT, environment())
  atexit.register(made.close)
  return made


def jax_settings(env):
  """What JAX reads when it is imported."""
  return {key: value for key, value in env.items() if key.startswith("JAX_")}


def start(command, **options):
  """Starts a command from the repository's root; its output is read through `stdout`."""
  return subprocess.Popen(
    [str(part) for part in command],
    cwd=ROOT,
    env=environment(**options),
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
  )


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
  }
  settings = [f"--config.{key}={value}" for key, value in small.items()]
  return [*MAIN, "--config=configs/vit_digits.py", f"--workdir={workdir}", *settings, *overrides]
