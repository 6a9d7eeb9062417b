"""Joins several processes to one run, and checks that all of them agree. Hosts run one command.

Where processes differ, a shared computation may stall, or go on with wrong numbers. Before they
compute together they exchange facts through the key-value store of JAX's coordinator, which needs
no device.
"""

import atexit
import contextlib
import ctypes
import dataclasses
import errno
import hashlib
import ipaddress
import json
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import jax
from jax._src import distributed, xla_bridge  # no public API: the store, whether devices are used

from vit_jax.process import machine
from vit_jax.process.errors import ConfigError, RunError
from vit_jax.process.text import shortened, shown

MAX_PROCESSES = 100_000
HOST = re.compile(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.%]+\]")  # a name, an IPv4 address or [IPv6]
JOINING = 300  # seconds
# Seconds without a heartbeat after which JAX considers a process dead and ends the others. It sends
# one after each half of it. More than twice the watchdog's, whose message says more.
SILENCE = 300
_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int)
_handlers = []  # the C library holds only their addresses: they must never be freed
_launches = []  # one entry for each, because a key of the store can be set only once

# If a computation across hosts fails, JAX's message begins with one of these codes. The class of
# the error varies.
_FAILED = ("UNKNOWN", "UNAVAILABLE", "INTERNAL", "ABORTED", "CANCELLED", "DEADLINE_EXCEEDED")


@dataclasses.dataclass(frozen=True)
class Hosts:
  """How the processes of a run find each other, if the environment does not tell them.

  Attributes:
    coordinator: HOST:PORT of the first process; empty on Cloud TPU, under SLURM, and for a run of
      one process.
    processes: the number of processes.
    process: the index of this process, from 0.
  """

  coordinator: str = ""
  processes: int = 0
  process: int = -1


def say_that_others_are_gone():
  """Prints why this process ends, if JAX aborts it before the watchdog has begun to watch."""
  print(
    "vit_jax: This process was aborted while it started, for the reason above. Another process, "
    "most likely process 0, is gone. Start the same command again on all hosts.",
    file=sys.stderr,
    flush=True,
  )


def connect(
  hosts: Hosts,
  *,
  seconds: int = JOINING,
  aborted: Callable[[], None] = say_that_others_are_gone,
):
  """Joins the processes of a run, if they are not joined yet; every launch calls it once.

  Call it before anything uses a device. The other processes may begin up to `seconds` later.

  On a Cloud TPU, and under SLURM with more than one task, the environment tells which processes
  there are.

  Args:
    hosts: how this process finds the others.
    seconds: how long to wait for the others; then JAX aborts this process.
    aborted: called if JAX aborts this process before the watchdog watches.

  Raises:
    ConfigError: the flags do not describe a group of processes, or another process has the place
      of this one.
    RunError: the other processes cannot be reached.
  """
  check(hosts)
  _launches.append(hosts)
  if jax.distributed.is_initialized():
    before_abort(aborted)
    return
  joined = machine.under_slurm() or (machine.on_tpu() and not _is_alone())
  if not (hosts.coordinator or joined):
    return
  claimed = claim(hosts)
  try:
    _initialize(hosts, seconds, aborted)
  except BaseException:  # also Ctrl-C, or an answer that a metadata server owes
    claimed.close()
    raise


def _initialize(hosts, seconds, aborted):
  known = {}
  if has_whole_node():
    known["local_device_ids"] = []  # JAX would take one device: that of SLURM_LOCALID
  if hosts.coordinator:
    address = bind_address(hosts.coordinator)
    if hosts.process == 0:
      check_port(hosts.coordinator, address)
    known |= dict(
      coordinator_address=hosts.coordinator,
      num_processes=hosts.processes,
      process_id=hosts.process,
      coordinator_bind_address=address,
    )
  before_abort(aborted)
  handler = signal.getsignal(signal.SIGTERM)
  try:
    jax.distributed.initialize(
      **known,
      heartbeat_timeout_seconds=SILENCE,
      initialization_timeout=seconds,
    )
  except (RuntimeError, ValueError) as error:
    raise RunError(
      f"The processes of this run could not be joined: {error}. Every host must run the same "
      "command, with --process counting from 0, and reach the coordinator's port."
    ) from error
  in_main = threading.current_thread() is threading.main_thread()
  if distributed.global_state.num_processes == 1 and in_main:
    signal.signal(signal.SIGTERM, handler)  # not JAX's, which would wait for the other processes


def _is_alone() -> bool:
  """Whether the program of this process uses devices already, without those of other hosts."""
  return xla_bridge.backends_are_initialized() and jax.process_count() == 1


# They decide where JAX finds process 0, and which one this is, if no flags do. A TPU VM has only
# one process of a run, and without SLURM none of its variables.
OF_PLACE = (
  "JAX_COORDINATOR_ADDRESS",
  "JAX_COORDINATOR_PORT",
  "SLURM_JOB_ID",
  "SLURM_STEP_NODELIST",
  "SLURM_PROCID",
)


def claim(hosts: Hosts) -> socket.socket:
  """Claims the place of this process in a run on this machine, until the process ends.

  JAX would take a second process of the same number for the first one, restarted, and end the run.

  Returns:
    What holds the claim; closed, it gives it back.

  Raises:
    ConfigError: a process of this number, with this coordinator, runs on this machine.
  """
  place = [hosts.coordinator, str(hosts.process)]
  if not hosts.coordinator:
    place = [os.environ.get(name, "") for name in OF_PLACE]
  digest = hashlib.sha256("\n".join(place).encode()).hexdigest()  # names have 107 bytes at most
  claimed = socket.socket(socket.AF_UNIX)
  try:  # Linux frees a name that begins with NUL, no matter how the process ends
    claimed.bind(f"\0vit_jax {digest}")
  except OSError as error:
    claimed.close()
    if error.errno == errno.EADDRINUSE:
      raise ConfigError(_taken(hosts)) from error
    return claimed  # another system, without such names
  atexit.register(claimed.close)  # keeps the socket, and so the claim, until then
  return claimed


def _taken(hosts: Hosts) -> str:
  if not hosts.coordinator:
    return (
      "Another run of this TPU VM, or of this process of the SLURM job, runs on this machine "
      "already; wait until it ends, or give each run its own JAX_COORDINATOR_PORT."
    )
  return (
    f"--process={hosts.process} with --coordinator={hosts.coordinator} runs on this machine "
    "already; give each process of a run its own number, and each run its own port."
  )


def bind_address(coordinator: str) -> str | None:
  """Where process 0 listens: only at the coordinator's address, if this machine has it.

  None means every address of the machine: if the coordinator's address is translated on the way, or
  if its name stands for a loopback address only here, as in many /etc/hosts files.
  """
  host, _, port = coordinator.rpartition(":")
  name = host.strip("[]")
  try:
    family, _, _, _, place = socket.getaddrinfo(name, 0, type=socket.SOCK_STREAM)[0]
    with socket.socket(family) as probe:
      probe.bind(place)
  except OSError:
    return None
  local = ipaddress.ip_address(place[0].partition("%")[0]).is_loopback
  if local and name not in ("localhost", place[0]):
    return None
  if family == socket.AF_INET6:
    return f"[{place[0]}]:{port}"
  return f"{place[0]}:{port}"


def check_port(coordinator: str, address: str | None):
  """Checks that process 0 can listen; otherwise JAX would crash (SIGSEGV).

  Args:
    coordinator: HOST:PORT of process 0.
    address: where it listens; None: at every address of the machine.

  Raises:
    ConfigError: another program has the port, or this user may not use it.
  """
  host, _, port = (address or f"[::]:{coordinator.rpartition(':')[2]}").rpartition(":")
  family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
  if address is None and not socket.has_dualstack_ipv6():
    host = "0.0.0.0"
    family = socket.AF_INET
  with socket.socket(family) as probe:
    for option in ("SO_REUSEADDR", "SO_REUSEPORT"):  # as JAX's library listens
      if hasattr(socket, option):
        probe.setsockopt(socket.SOL_SOCKET, getattr(socket, option), 1)
    if address is None and family == socket.AF_INET6:
      probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    try:
      probe.bind((host.strip("[]"), int(port)))
    except OSError as error:
      raise ConfigError(
        f"--coordinator={coordinator}: process 0 cannot listen at port {port} "
        f"({error.strerror}); give another port, the same one to all processes."
      ) from error


def check(hosts: Hosts):
  """Refuses flags that do not describe a group of processes.

  Raises:
    ConfigError: the coordinator, the number of processes or the index of this one is wrong.
  """
  if hosts == Hosts():
    return
  host, _, port = hosts.coordinator.rpartition(":")
  good = HOST.fullmatch(host) and re.fullmatch(r"[0-9]{1,5}", port) and 0 < int(port) < 2**16
  if not good:
    raise ConfigError(
      f"--coordinator={shown(hosts.coordinator)} must be HOST:PORT of process 0, with a port from "
      "1 to 65535; give --processes and --process as well."
    )
  if hosts.processes > MAX_PROCESSES:
    raise ConfigError(
      f"--processes={shown(hosts.processes)} is too large; the most is {MAX_PROCESSES:,}."
    )
  if not 0 <= hosts.process < hosts.processes:
    raise ConfigError(
      f"--process={shown(hosts.process)} must be at least 0 and below "
      f"--processes={shown(hosts.processes)}."
    )


def has_whole_node() -> bool:
  """Whether SLURM runs one task on each node, which then computes on all devices of its node.

  Of several tasks on a node, each takes one device. JAX_LOCAL_DEVICE_IDS takes precedence.
  """
  nodes = os.environ.get("SLURM_STEP_NUM_NODES", "")
  alone = nodes == os.environ.get("SLURM_STEP_NUM_TASKS")
  return alone and "JAX_LOCAL_DEVICE_IDS" not in os.environ


def before_abort(speak: Callable[[], None]):
  """Calls `speak` if the process is aborted, and then ends the process with status 1.

  JAX has no working hook for this, and aborts from a thread of its own. Python's signal handlers
  run only in the main thread, which is too late. A C handler runs inside the call of abort, and
  the other threads keep running, so `speak` may take its time. Only the last `speak` is called.
  """

  def aborted(_):
    try:
      speak()
    finally:
      os._exit(1)

  handler = _HANDLER(aborted)
  _handlers.append(handler)
  set_handler(signal.SIGABRT, ctypes.cast(handler, ctypes.c_void_p).value)


def set_handler(number: int, handler: int | None) -> int | None:
  """Sets the address of a handler as C does, in any thread; None: the signal's usual effect.

  Returns the address before, which may be of a handler that Python does not know, such as JAX's.
  """
  library = ctypes.CDLL(None)
  library.signal.argtypes = ctypes.c_int, ctypes.c_void_p
  library.signal.restype = ctypes.c_void_p
  return library.signal(number, handler)


@contextlib.contextmanager
def ended_by_sigterm() -> Iterator[None]:
  """SIGTERM inside ends this process at once, if it is one of several.

  JAX's own handler would wait for a training step. It is back afterwards, for a training.
  """
  if jax.process_count() == 1:
    yield
    return
  before = set_handler(signal.SIGTERM, None)
  try:
    yield
  finally:
    set_handler(signal.SIGTERM, before)


def is_of_others(error: Exception) -> bool:
  """Whether a computation failed; with several processes, another process may be the cause.

  JAX raises such errors as ValueError too. tensorstore raises ValueError for files; its messages
  contain the error code of the operating system.
  """
  if isinstance(error, jax.errors.JaxRuntimeError):
    return True
  words = str(error)
  plain = type(error) is ValueError and "os_error_code" not in words
  return plain and words.startswith(tuple(f"{code}: " for code in _FAILED))


UNKNOWN = "not known"  # a fact that is not compared
MOST_DIFFERENCES = 4  # differences in a message
LONGEST_VALUE = 10.0**6  # seconds to wait, if the watchdog has no limit
LEAST = 1.0  # seconds to get an answer that is there
SLACK = 60  # more seconds for the first process to report a timeout


class Told(NamedTuple):
  """A message from a process to the others.

  Attributes:
    host: the name of its machine.
    refusal: why it ends; "" if it goes on.
    facts: values that must be the same in all processes.
  """

  host: str
  refusal: str
  facts: Mapping[str, str]


def compare_processes(
  topic: str, facts: Mapping[str, str], *, seconds: float = 0, refusal: str = ""
):
  """Checks that all processes have the same facts; every process must call it.

  Args:
    topic: a word for these facts; each topic is compared once in a launch.
    facts: values by name, as a message gives them.
    seconds: how long to wait for the other processes; 0: without a limit.
    refusal: why this process does not go on; the others then end too.

  Raises:
    ConfigError: on every process: some facts differ, or a process does not go on.
    RunError: a process does not answer.
  """
  state = distributed.global_state
  if state.client is None:
    return
  told = Told(socket.gethostname(), refusal, dict(facts))
  state.client.key_value_set(_key(topic, state.process_id), json.dumps(told))
  limit = seconds or LONGEST_VALUE
  if state.process_id == 0:
    verdict = _verdict(topic, state, limit)
    state.client.key_value_set(_key(topic, "verdict"), json.dumps(verdict))
  most = 2 * limit + SLACK  # the first process may come last, and then waits for others
  patience = f"{most:g} s (twice config.stall_seconds, and {SLACK} s)"
  words, silent = json.loads(_of(topic, "verdict", state, patience, left=most))
  if silent:
    raise RunError(words)
  if words:
    raise ConfigError(words)


@contextlib.contextmanager
def told(topic: str, *, seconds: float) -> Iterator[None]:
  """If an error is raised inside, the other processes end too when they compare these facts.

  The arguments are as for `compare`.
  """
  try:
    yield
  except (ConfigError, RunError) as error:
    with contextlib.suppress(ConfigError, RunError):
      compare_processes(topic, {}, seconds=seconds, refusal=str(error))
    raise


def _key(topic: str, whose) -> str:
  return f"vit_jax/{len(_launches)}/{topic}/{whose}"


def _of(topic: str, whose, state, patience: str, *, left: float) -> str:
  """Waits for an answer; `left` seconds are left of the time that `patience` tells."""
  try:
    return state.client.blocking_key_value_get(_key(topic, whose), int(left * 1000))
  except jax.errors.JaxRuntimeError as error:
    silent = 0 if whose == "verdict" else whose
    raise RunError(
      f"Process {silent} has not answered within {patience}; see what it prints, and start the "
      "same command again on all hosts."
    ) from error


def _verdict(topic: str, state, seconds: float) -> tuple[str, bool]:
  """A sentence that says what is wrong, or "", and whether a process is silent."""
  told = []
  until = time.monotonic() + seconds
  patience = f"{seconds:g} s (config.stall_seconds)"
  try:
    for process in range(state.num_processes):
      left = max(until - time.monotonic(), LEAST)
      told.append(Told(*json.loads(_of(topic, process, state, patience, left=left))))
  except RunError as error:
    return str(error), True
  return differences(told), False


def differences(told: Sequence[Told]) -> str:
  """A sentence that says why processes cannot run together; "" if they can."""
  for process, one in enumerate(told):
    if one.refusal:
      return f"Process {process} on host {one.host} does not start: {one.refusal}"
  differing = []
  for name in dict.fromkeys(name for one in told for name in one.facts):
    values = {one.facts.get(name) for one in told} - {UNKNOWN}
    if len(values) > 1:
      differing.append(name)
  if not differing:
    return ""
  words = "; ".join(f"{name} is {_values(name, told)}" for name in differing[:MOST_DIFFERENCES])
  if len(differing) > MOST_DIFFERENCES:
    words += f"; {len(differing) - MOST_DIFFERENCES} more differ"
  return (
    f"The processes of this run are not alike: {words}. Give every host the same command, "
    "code, versions, variables and data, and start all of them again."
  )


def _values(name: str, told: Sequence[Told]) -> str:
  """The values of a fact, each with its processes."""
  processes = {}
  for process, one in enumerate(told):
    processes.setdefault(one.facts.get(name), []).append(process)
  words = []
  for value, who in processes.items():
    shown = "not there" if value is None else shortened(value)
    words.append(f"{shown} in {_named(who, told)}")
  return " and ".join(words)


def _named(processes: Sequence[int], told: Sequence[Told]) -> str:
  if len(processes) == 1:
    return f"process {processes[0]} ({told[processes[0]].host})"
  few = ", ".join(map(str, processes[:MOST_DIFFERENCES]))
  if len(processes) > MOST_DIFFERENCES:
    return f"processes {few} and more"
  return f"processes {few}"
