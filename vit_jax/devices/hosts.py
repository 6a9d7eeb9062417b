"""Several processes as one run. Every host runs the same command; nothing else must come before."""

import dataclasses
import importlib.util
import os
import pathlib
import re
import sys

import jax

from vit_jax.config import ConfigError, RunError
from vit_jax.process import aborts
from vit_jax.process.text import shown

MOST_PROCESSES = 100_000
HOST = re.compile(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.%]+\]")  # a name, an IPv4 address or [IPv6]
LONGEST_SILENCE = 300  # seconds; the watchdog, which says more, is to come first
TPU_DEVICES = ("/dev/accel0", "/dev/vfio/0")


@dataclasses.dataclass(frozen=True)
class Hosts:
  """Where the processes meet, for machines that do not tell it.

  Attributes:
    coordinator: HOST:PORT of the first process; empty on Cloud TPU, under SLURM and alone.
    processes: how many there are.
    process: which of them this is, from 0.
  """

  coordinator: str = ""
  processes: int = 0
  process: int = -1


def connect(hosts: Hosts, *, stall_seconds: float):
  """Joins the processes; to be called before any device is asked for.

  On a Cloud TPU and under SLURM with more than one task the machine says who they are. A process
  that is not heard of for a while is taken for dead, and the others end (`heartbeat`).

  Raises:
    ConfigError: flags that do not describe a group of processes.
    RunError: the others cannot be reached.
  """
  check(hosts)
  known = {}
  if hosts.coordinator:
    known = dict(
      coordinator_address=hosts.coordinator,
      num_processes=hosts.processes,
      process_id=hosts.process,
    )
  elif not (on_tpu() or under_slurm()):
    return
  aborts.before(say_that_others_are_gone)
  try:
    jax.distributed.initialize(**known, heartbeat_timeout_seconds=heartbeat(stall_seconds))
  except (RuntimeError, ValueError) as error:
    raise RunError(
      f"The processes of this run could not be joined: {error}. Every host must run the same "
      "command, with --process counting from 0, and reach the coordinator's port."
    ) from error


def say_that_others_are_gone():
  """The last word of a process that is aborted before its watchdog knows of the others."""
  print(
    "vit_jax: This process was aborted while it started, for the reason above: another is gone, "
    "most likely process 0, with which all must speak. Start the same command again on all hosts.",
    file=sys.stderr,
    flush=True,
  )


# As JAX words what a computation between hosts failed of, whatever class of error it makes of that.
FAILED = ("UNKNOWN", "UNAVAILABLE", "INTERNAL", "ABORTED", "CANCELLED", "DEADLINE_EXCEEDED")


def is_of_others(error: Exception) -> bool:
  """Whether an error is of a computation, which in a run of several may be another process's fault.

  JAX has such errors as ValueError too. Those of tensorstore, of files, have the system's code.
  """
  if isinstance(error, jax.errors.JaxRuntimeError):
    return True
  words = str(error)
  plain = type(error) is ValueError and "os_error_code" not in words
  return plain and words.startswith(tuple(f"{code}: " for code in FAILED))


def heartbeat(stall_seconds: float) -> int:
  """Seconds of silence after which JAX takes a process for dead, and ends the others.

  More than twice what the watchdog takes, because a heartbeat is sent each half of this time.
  """
  return round(min(4 * stall_seconds, LONGEST_SILENCE)) or LONGEST_SILENCE


def check(hosts: Hosts):
  """Refuses flags that do not describe a group of processes."""
  if hosts == Hosts():
    return
  host, _, port = hosts.coordinator.rpartition(":")
  good = HOST.fullmatch(host) and re.fullmatch(r"[0-9]{1,5}", port) and 0 < int(port) < 2**16
  if not good:
    raise ConfigError(
      f"--coordinator={shown(hosts.coordinator)} must be HOST:PORT of process 0, with a port from "
      "1 to 65535; it goes with --processes and --process."
    )
  if hosts.processes > MOST_PROCESSES:
    raise ConfigError(
      f"--processes={shown(hosts.processes)} is too large; the most is {MOST_PROCESSES:,}."
    )
  if not 0 <= hosts.process < hosts.processes:
    raise ConfigError(
      f"--process={shown(hosts.process)} must be at least 0 and below "
      f"--processes={shown(hosts.processes)}."
    )


def on_tpu() -> bool:
  """Whether this is a Cloud TPU VM with libtpu."""
  return importlib.util.find_spec("libtpu") is not None and any(
    pathlib.Path(device).exists() for device in TPU_DEVICES
  )


def under_slurm() -> bool:
  """Whether this is one of several tasks that srun started.

  A batch script has the number of its job's tasks and an index too, but is no step.
  """
  tasks = os.environ.get("SLURM_STEP_NUM_TASKS", "1")
  return tasks.isdecimal() and int(tasks) > 1
