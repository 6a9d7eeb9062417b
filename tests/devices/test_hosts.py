"""How processes find one another, and what they say of one another. Together: tests/faults."""

import os
import signal
import socket
import sys

import jax
import pytest

from tests import programs
from vit_jax.config import ConfigError, RunError
from vit_jax.devices import hosts
from vit_jax.devices.hosts import Hosts
from vit_jax.process import machine

BATCH = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_PROCID": "0"}  # of a batch script


@pytest.mark.parametrize(
  ("variables", "device", "used", "joins"),
  [
    ({}, False, False, False),
    ({}, True, False, True),
    ({}, True, True, False),  # of one host, by a program that calls vit_jax.train
    ({**BATCH, "SLURM_NTASKS": "1", "SLURM_STEP_NUM_TASKS": "1"}, False, False, False),  # srun -n1
    (BATCH, False, False, False),  # sbatch without srun
    ({**BATCH, "SLURM_STEP_NUM_TASKS": "1"}, False, False, False),  # the shell of salloc
    ({**BATCH, "SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "2"}, False, False, True),
    ({**BATCH, "SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "2"}, False, True, True),  # refused
  ],
)
def test_processes_are_joined_where_the_machine_knows_of_others(
  monkeypatch, tmp_path, variables, device, used, joins
):
  for name in [name for name in os.environ if name.startswith("SLURM_")]:
    monkeypatch.delenv(name)
  for name, value in variables.items():
    monkeypatch.setenv(name, value)
  (tmp_path / "accel0").touch()
  monkeypatch.setattr(machine, "TPU_DEVICES", (str(tmp_path / ("accel0" if device else "none")),))
  monkeypatch.setattr(machine.importlib.util, "find_spec", {"libtpu": "found"}.get)
  monkeypatch.setattr(hosts.xla_bridge, "backends_are_initialized", lambda: used)
  monkeypatch.setattr(hosts, "claim", lambda _: None)  # it would last too long
  calls = []
  monkeypatch.setattr(jax.distributed, "initialize", lambda **given: calls.append(given))
  hosts.connect(Hosts())
  given = {"heartbeat_timeout_seconds": 300, "initialization_timeout": 300}
  assert calls == ([given] if joins else [])


TASK = """
from jax._src.xla_bridge import CUDA_VISIBLE_DEVICES
from vit_jax.devices import hosts

hosts.connect(hosts.Hosts())
print(CUDA_VISIBLE_DEVICES.value)
"""


@pytest.mark.parametrize(
  ("variables", "visible"),
  [
    ({"SLURM_STEP_NUM_NODES": "2"}, "all"),
    ({"SLURM_STEP_NUM_NODES": "2", "JAX_LOCAL_DEVICE_IDS": "3,4"}, "3,4"),
    ({"SLURM_STEP_NUM_NODES": "1"}, "0"),
  ],
  ids=["a task a node", "some devices of it", "two tasks a node"],
)
def test_a_task_that_has_a_node_has_all_of_its_devices(variables, visible):
  step = dict(SLURM_STEP_NUM_TASKS="2", SLURM_STEP_NODELIST="localhost", SLURM_LOCALID="0")
  alone = BATCH | step | {"SLURM_NTASKS": "1", "SLURM_JOB_ID": str(os.getpid())}
  result = programs.run([sys.executable, "-c", TASK], timeout=60, **alone, **variables)
  assert result.stdout == f"{visible}\n", result.stderr


TWICE = """
import signal
from vit_jax.devices import hosts

signal.signal(signal.SIGTERM, lambda *_: print("heard"))
for _ in range(2):
  hosts.connect(hosts.Hosts("127.0.0.1:{port}", 1, 0))
  signal.raise_signal(signal.SIGTERM)
  hosts.compare_processes("start", {{"a": "1"}}, seconds=9)
"""


def test_a_process_connects_again_and_if_it_is_alone_still_hears_sigterm():
  with socket.create_server(("127.0.0.1", 0)) as free:
    port = free.getsockname()[1]
  result = programs.run([sys.executable, "-c", TWICE.format(port=port)], timeout=60)
  assert (result.returncode, result.stdout) == (0, "heard\nheard\n"), result.stderr


BACK = """
import signal
import jax
from vit_jax.devices import hosts

jax.distributed.initialize("127.0.0.1:{port}", 1, 0)
jax.process_count = lambda: 2
with hosts.ended_by_sigterm():
  print(hosts.set_handler(signal.SIGTERM, None))
signal.raise_signal(signal.SIGTERM)
print("goes on", flush=True)
with hosts.ended_by_sigterm():
  signal.raise_signal(signal.SIGTERM)
"""


def test_sigterm_ends_one_of_several_processes_inside_an_evaluation_alone():
  """Afterwards JAX hears it again, which stops a training of all of them."""
  with socket.create_server(("127.0.0.1", 0)) as free:
    port = free.getsockname()[1]
  result = programs.run([sys.executable, "-c", BACK.format(port=port)], timeout=60)
  assert result.stdout == "None\ngoes on\n", result.stderr
  assert result.returncode == -signal.SIGTERM


ABORTED = """
import os, threading, time
from vit_jax.devices import hosts

hosts.before_abort(lambda: print("never"))
hosts.before_abort(lambda: (time.sleep(0.5), print("the last word", flush=True)))
threading.Thread(target=os.abort).start()
while True:
  time.sleep(1)
"""


def test_a_process_that_is_aborted_has_the_last_word():
  result = programs.run([sys.executable, "-X", "faulthandler", "-c", ABORTED], timeout=60)
  assert (result.returncode, result.stdout, result.stderr) == (1, "the last word\n", "")


@pytest.mark.parametrize(
  ("given", "message"),
  [
    (Hosts(coordinator="here", processes=2, process=0), "HOST:PORT"),
    (Hosts(processes=2, process=0), "HOST:PORT"),
    (Hosts(coordinator="a:1", processes=2, process=2), "--process=2 .*--processes=2"),
    (Hosts(coordinator="a:1", processes=2), "--process=-1"),
    (Hosts(coordinator="a:1"), "--process=-1 .*--processes=0"),
  ],
)
def test_flags_that_describe_no_group(given, message):
  with pytest.raises(ConfigError, match=message):
    hosts.check(given)


@pytest.mark.parametrize("place", ["127.0.0.1", ""])
def test_a_port_that_another_program_has_is_refused(place):
  """By an address, and where process 0 listens at all of them; JAX would end by SIGSEGV."""
  assert hosts.bind_address("127.0.0.1:1234") == "127.0.0.1:1234"
  assert hosts.bind_address("[::1]:1234") in ("[::1]:1234", None)  # None without IPv6
  for elsewhere in ("192.0.2.1:1234", "no-such-host.invalid:1234"):  # translated on the way
    assert hosts.bind_address(elsewhere) is None
  with socket.create_server((place, 0)) as other:
    port = other.getsockname()[1]
    for host in ("127.0.0.1", "192.0.2.1"):
      given = Hosts(f"{host}:{port}", 2, 0)
      with pytest.raises(ConfigError, match=f"cannot listen at port {port} .*another port"):
        hosts.connect(given)
  for address in (f"127.0.0.1:{port}", None):
    hosts.check_port(f"127.0.0.1:{port}", address)  # it is free again


def test_a_second_process_of_the_same_number_is_refused_and_the_first_is_left_alone():
  first = hosts.Hosts("127.0.0.1:65001", 2, 1)
  hosts.claim(first)
  with pytest.raises(ConfigError, match=r"--process=1 with --coordinator=127\.0\.0\.1:65001 runs"):
    hosts.claim(first)
  hosts.claim(hosts.Hosts("127.0.0.1:65001", 2, 0))


def test_so_is_one_that_the_environment_gives_the_place_of_another(monkeypatch):
  """Such as a command with a mistake, beside a run: JAX would end that run."""
  step = dict(SLURM_JOB_ID=str(os.getpid()), SLURM_STEP_NODELIST="n[1-9]" * 99, SLURM_PROCID="1")
  for name, value in step.items():
    monkeypatch.setenv(name, value)
  hosts.claim(Hosts())
  calls = []
  monkeypatch.setattr(jax.distributed, "initialize", lambda **given: calls.append(given))
  monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")
  with pytest.raises(ConfigError, match="runs on this machine already"):
    hosts.connect(Hosts())
  assert not calls
  for name, value in {"SLURM_PROCID": "0", "JAX_COORDINATOR_PORT": "65002"}.items():
    monkeypatch.setenv(name, value)
    hosts.claim(Hosts())


def test_a_process_that_could_not_be_joined_may_try_again(monkeypatch):
  def initialize(**given):
    raise RuntimeError("no network")

  monkeypatch.setattr(jax.distributed, "initialize", initialize)
  monkeypatch.setattr(hosts, "before_abort", lambda _: None)
  with socket.create_server(("127.0.0.1", 0)) as free:
    asked = Hosts(f"127.0.0.1:{free.getsockname()[1]}", 2, 1)
  for _ in range(2):
    with pytest.raises(RunError, match="no network"):
      hosts.connect(asked)


@pytest.mark.parametrize(
  ("error", "shared"),
  [
    (jax.errors.JaxRuntimeError("UNKNOWN: Connection closed by peer"), True),
    (ValueError("UNKNOWN: Gloo AllGather failed: Connection reset by peer"), True),
    (ValueError("NOT_FOUND: Error opening a file"), False),
    (ValueError("INTERNAL: Error writing [os_error_code='28']"), False),
    (ValueError("shapes differ"), False),
    (ConfigError("UNKNOWN: a setting"), False),
    (OSError(28, "No space left on device"), False),
  ],
)
def test_errors_of_computations_that_hosts_share_are_told_from_others(error, shared):
  assert hosts.is_of_others(error) == shared
