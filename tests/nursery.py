"""Runs of the main program that begin with everything imported: forks of one waiting process.

They differ from a program started anew in nothing but the seconds that this takes, of which the
tests have hundreds. Run as a program this is the waiting process; each message on its socket, whose
number it is given, asks for one run.
"""

import array
import dataclasses
import functools
import json
import os
import socket
import subprocess
import sys
import threading

MOST = 2**20  # bytes of a request
STREAMS = 2  # stdout and stderr


@dataclasses.dataclass
class Child:
  """A run under way.

  Attributes:
    pid: its process.
  """

  pid: int
  _nursery: "Nursery"
  _readers: list[threading.Thread]
  _texts: list[str]

  def wait(self) -> int:
    """Its exit status, once it has ended."""
    return self._nursery.receive()

  def communicate(self) -> tuple[str, str]:
    """All that it wrote to stdout and stderr."""
    for reader in self._readers:
      reader.join()
    return tuple(self._texts)


class Nursery:
  """Starts runs, one at a time."""

  def __init__(self, cwd, env: dict[str, str]):
    """Starts the waiting process; what JAX reads while it is imported is of `env`."""
    self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with other:
      self._process = subprocess.Popen(
        [sys.executable, "-m", "tests.nursery", str(other.fileno())],
        cwd=cwd,
        env=env,
        pass_fds=[other.fileno()],
        stdin=subprocess.DEVNULL,
      )

  def start(self, module: str, arguments: list[str], env: dict[str, str]) -> Child:
    """Starts `python -m MODULE ARGUMENTS...`."""
    pipes = [os.pipe() for _ in range(STREAMS)]
    request = json.dumps([module, arguments, env]).encode()
    socket.send_fds(self._socket, [request], [write for _, write in pipes])
    for _, write in pipes:
      os.close(write)
    texts = [""] * STREAMS
    readers = [
      threading.Thread(target=_read, args=(read, texts, i)) for i, (read, _) in enumerate(pipes)
    ]
    for reader in readers:
      reader.start()
    return Child(self.receive(), self, readers, texts)

  def close(self):
    """Ends the waiting process."""
    self._socket.close()
    self._process.wait()

  def receive(self) -> int:
    """The next number that the waiting process tells."""
    (number,) = array.array("q", self._socket.recv(8))
    return number


def _read(descriptor, texts, i):
  with open(descriptor, encoding="utf-8") as stream:
    texts[i] = stream.read()


def serve(descriptor: int):
  """Forks for every request; tells the number of each process, then its exit status."""
  import matplotlib.figure  # noqa: F401
  import sklearn.datasets
  import sklearn.model_selection  # noqa: F401

  from tests.faults import driver
  from vit_jax import launch, main, train  # noqa: F401

  programs = {"vit_jax.main": main.run, "tests.faults.driver": driver.run}
  tell = lambda number: asked.send(array.array("q", [number]))
  with socket.socket(fileno=descriptor) as asked:
    while True:
      request, streams, *_ = socket.recv_fds(asked, MOST, STREAMS)
      if not request:
        return None
      child = os.fork()
      if not child:
        module, arguments, env = json.loads(request)
        return functools.partial(begin, programs[module], [module, *arguments], env, streams)
      for stream in streams:
        os.close(stream)
      tell(child)
      tell(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def begin(program, arguments, env, streams):
  """Makes this process what was asked for."""
  for number, stream in enumerate(streams, 1):
    os.dup2(stream, number)
    os.close(stream)
  os.environ.clear()
  os.environ.update(env)
  sys.argv = arguments
  program()


if __name__ == "__main__":
  run = serve(int(sys.argv[1]))
  if run:
    run()
