"""A server that has imported the main program, and forks a process for each run of it.

A test that starts a run so saves the seconds that imports take; there are hundreds of such runs.
The server is a process of its own, `python -m tests.fork_server SOCKET`; each message on the socket
asks for one run.

A fork differs from a process that was started anew in two ways: the main program does not start
itself again for huge pages, and of JAX's environment variables only JAX_PLATFORMS may differ from
the server's, because JAX reads the others while it is imported. Another one is refused.
"""

import array
import contextlib
import functools
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from typing import TextIO

MAX_REQUEST = 2**20  # bytes of a request
HANDED = 3  # with each: stdout, stderr, and a socket for the run's process number and exit status


class Run:
  """A run under way: what the tests need of subprocess.Popen.

  Attributes:
    pid: its process.
    stdout: what it writes, where that is read while it runs.
    returncode: its exit status, once that has been waited for.
    cpu_seconds: time that it computed for, known with its exit status. On a machine that does other
      work too, this says more of the run than a clock.
  """

  def __init__(self, told: socket.socket, stdout: TextIO | None):
    self._told = told
    self.stdout = stdout
    self.returncode = self.cpu_seconds = None
    self.pid = self._number()

  def __enter__(self):
    return self

  def __exit__(self, *_):
    self.stdout.close()
    self.wait()

  def wait(self, timeout: float | None = None) -> int:
    """Its exit status, once it has ended; subprocess.TimeoutExpired after `timeout` seconds."""
    if self.returncode is None:
      if not select.select([self._told], [], [], timeout)[0]:
        raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
      self.returncode, microseconds = self._number(), self._number()
      self.cpu_seconds = microseconds / 1e6
      self._told.close()
    return self.returncode

  def poll(self) -> int | None:
    """Its exit status, or None while it runs."""
    with contextlib.suppress(subprocess.TimeoutExpired):
      self.wait(0)
    return self.returncode

  def finish(self, timeout: float) -> str:
    """What it writes until it ends; after `timeout` seconds it is killed."""
    limit = threading.Timer(timeout, self.kill)
    limit.start()
    with self:
      text = self.stdout.read()
    limit.cancel()
    return text

  def send_signal(self, number: int):
    """Sends a signal, if it runs."""
    if self.poll() is None:
      os.kill(self.pid, number)

  def kill(self):
    """Ends it, if it runs."""
    self.send_signal(signal.SIGKILL)

  def _number(self):
    (number,) = array.array("q", self._told.recv(8))
    return number


class ForkServer:
  """Starts the server, and runs by it."""

  def __init__(self, cwd, env: dict[str, str]):
    """Starts the server in the folder `cwd`, with the environment `env`."""
    self._jax = of_jax(env)
    self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with other:
      self._process = subprocess.Popen(
        [sys.executable, "-m", "tests.fork_server", str(other.fileno())],
        cwd=cwd,
        env=env,
        pass_fds=[other.fileno()],
        stdin=subprocess.DEVNULL,
      )

  def start(self, module: str, arguments: list[str], env, outputs, stdout=None) -> Run:
    """Starts `python -m MODULE ARGUMENTS...`.

    Args:
      module: of `serve`.
      arguments: its command line.
      env: its environment.
      outputs: two descriptors, which become its stdout and stderr.
      stdout: the other end of them, if the output is read while it runs.

    Raises:
      ValueError: JAX would read other settings from `env` than the server has.
    """
    if of_jax(env) != self._jax:
      raise ValueError(f"a fork cannot have JAX's settings {of_jax(env)}; start it anew")
    told, tells = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    request = json.dumps([module, arguments, env]).encode()
    with tells:
      socket.send_fds(self._socket, [request], [*outputs, tells.fileno()])
    return Run(told, stdout)

  def close(self):
    """Ends the server."""
    self._socket.close()
    self._process.wait()


def of_jax(env: dict[str, str]) -> dict[str, str]:
  """The variables that JAX reads while it is imported; `begin` sets JAX_PLATFORMS itself."""
  return {k: v for k, v in env.items() if k.startswith("JAX_") and k != "JAX_PLATFORMS"}


def serve(descriptor: int):
  """Forks for every request; returns, in the new process alone, what it has to do."""
  import_slow_ones()
  from tests.faults import driver
  from vit_jax import main

  programs = {"vit_jax.main": main.run, "tests.faults.driver": driver.run}
  with socket.socket(fileno=descriptor) as asked:
    while True:
      request, handed, *_ = socket.recv_fds(asked, MAX_REQUEST, HANDED)
      if not request:
        return None
      keeper = os.fork()
      if not keeper:
        *outputs, tells = handed
        keep(outputs, tells)
        module, arguments, env = json.loads(request)
        return functools.partial(begin, programs[module], [module, *arguments], env, outputs)
      for number in handed:
        os.close(number)
      bury()


def import_slow_ones():
  """Imports what a run imports on its way; most of a short run's time would go there."""
  for name in (
    "clu.parameter_overview",
    "matplotlib.backends.backend_agg",
    "matplotlib.figure",
    "vit_jax.evaluation.evaluate",
    "vit_jax.extras.report.report",
    "vit_jax.launch",
    "vit_jax.models.vit",
    "vit_jax.storage.events",
  ):
    importlib.import_module(name)
  gc.freeze()  # so that no fork goes through all of these objects again
  gc.set_threshold(100_000, 20, 100)  # as in tests/conftest.py


def keep(outputs, tells):
  """Forks once more; returns in the new process, while this one tells how that comes along.

  It tells its number and, at its end, its exit status and the microseconds that it computed for.
  """
  child = os.fork()
  if not child:
    os.close(tells)
    return
  for number in outputs:
    os.close(number)
  with socket.socket(fileno=tells) as told:
    told.send(array.array("q", [child]))
    _, status, used = os.wait4(child, 0)
    told.send(array.array("q", [os.waitstatus_to_exitcode(status)]))
    told.send(array.array("q", [round((used.ru_utime + used.ru_stime) * 1e6)]))
  os._exit(0)


def bury():
  """Forgets the keepers that have ended."""
  with contextlib.suppress(ChildProcessError):
    while os.waitpid(-1, os.WNOHANG)[0]:
      pass


def begin(program, arguments, env, outputs):
  """Makes this process what was asked for."""
  import jax

  for number, output in enumerate(outputs, 1):
    os.dup2(output, number)
  for output in set(outputs):
    os.close(output)
  os.environ.clear()
  os.environ.update(env)
  jax.config.update("jax_platforms", env["JAX_PLATFORMS"])
  share_compiled()
  sys.argv = arguments
  program()


def share_compiled():
  """Lets all processes of a run find the programs that the first one compiled and kept.

  JAX does so on GPUs; on CPUs each process has its own keys, and only the first one keeps programs,
  so that the others would compile everything in every run.
  """
  from jax._src import cache_key

  own = cache_key._hash_accelerator_config

  def of_run(hashed, devices):
    places = [(one.device_kind, one.id, one.process_index) for one in devices.flat]
    if len({process for *_, process in places}) > 1:
      hashed.update(repr(places).encode())
    else:
      own(hashed, devices)

  cache_key._hash_accelerator_config = of_run


if __name__ == "__main__":
  run = serve(int(sys.argv[1]))
  if run:
    run()
