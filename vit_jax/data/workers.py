"""Makes items in several worker processes, and returns them in order.

Parent and worker share only a socket: no lock and no memory. When one of them ends, for any reason,
the socket closes, so the other notices at once and nothing is left behind. Only the parent receives
signals. Run as a program, this module is a worker; its argument is the number of its socket.
"""

import contextlib
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from vit_jax.config import RunError
from vit_jax.process import at_work

_END = "end"
_ITEM = "item"
_ERROR = "error"
_SIZE = struct.Struct("!Q")
_LONG = 60.0  # seconds for an image
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_PROGRAM = [sys.executable, "-P", "-m", "vit_jax.data.workers"]


class WorkerError(RunError):
  """A worker has ended; the message says which one, how it ended, and what to do."""


class Workers:
  """Iterates over items that `count` processes make; process i % count makes item i.

  The processes start when the first item is requested.
  """

  def __init__(self, make: Callable[[int], Iterator], count: int):
    """Stores the arguments; starts no process yet.

    Args:
      make: make(worker) -> every count-th item, from number `worker` on. It must be picklable, and
        come from modules that can be imported. It reads ahead by itself: a worker waits until its
        item is taken.
      count: number of processes.
    """
    self._make, self._count = make, count
    self._workers: list[_Worker] = []
    self._next = 0
    self._ended = False

  def __iter__(self) -> Iterator:
    return self

  def __next__(self) -> Any:
    """The next item.

    Raises:
      StopIteration: the process whose turn it is has no more items.
      WorkerError: this process has ended.
      Exception: the error that this process raised.
    """
    if self._ended:
      raise StopIteration
    try:
      if not self._workers:
        self._start()
      item = self._workers[self._next % self._count].take()
    except BaseException:  # also an interrupt: after half an item the socket cannot be used again
      self.close()
      raise
    self._next += 1
    return item

  def close(self):
    """Ends the processes; no further items are available."""
    self._ended = True
    for worker in self._workers:
      worker.kill()
    for worker in self._workers:
      worker.wait()
    self._workers = []

  def _start(self):
    job = pickle.dumps(self._make)
    # Appended one by one, so that `close` ends the started ones if a later one cannot start.
    for index in range(self._count):
      self._workers.append(_Worker(index, self._count))
    for worker in self._workers:  # in a second loop, so that the processes start in parallel
      worker.give(job)


class _Worker:
  """One process, seen from the parent."""

  def __init__(self, index: int, count: int):
    self._index, self._count = index, count
    try:
      self._socket, self._process = _start_process()
    except OSError as error:
      raise WorkerError(
        f"Decoding process {index + 1} of {count} cannot be started: {error}. Set a smaller "
        f"config.data.workers, which is {count}."
      ) from error

  def give(self, job: bytes):
    try:
      _send(self._socket, (job, self._index))
    except ConnectionError as error:
      raise self._gone() from error

  def take(self) -> Any:
    try:
      kind, value = _receive(self._socket)
    except (EOFError, ConnectionError) as error:
      raise self._gone() from error
    if kind == _ITEM:
      return value
    raise StopIteration if kind == _END else value

  def kill(self):
    """Ends the process at once. It only reads, so no work is left half done."""
    self._socket.close()
    self._process.kill()

  def wait(self):
    self._process.wait()

  def _gone(self) -> WorkerError:
    status = self._process.wait()
    return WorkerError(
      f"Decoding process {self._index + 1} of {self._count} (process {self._process.pid}) "
      f"{_ending(status)}. Start the same command again; if that does not help, use a smaller "
      f"config.data.workers, which is {self._count}."
    )


def _ending(status: int) -> str:
  """How a process ended, as text; a negative status is the number of a signal."""
  if status == -signal.SIGKILL:
    return "was killed (SIGKILL), which the system does when memory runs out"
  if status < 0:
    return f"was ended by signal {-status} ({signal.strsignal(-status)})"
  return f"ended with status {status}; its messages are above"


def _start_process() -> tuple[socket.socket, subprocess.Popen]:
  """Starts a worker; returns the parent's end of the socket, and the process."""
  ours, theirs = socket.socketpair()
  with theirs, _signals_held():
    try:
      return ours, subprocess.Popen(
        [*_PROGRAM, str(theirs.fileno())],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        pass_fds=[theirs.fileno()],
        stdin=subprocess.DEVNULL,
      )
    except OSError:
      ours.close()
      raise


@contextlib.contextmanager
def _signals_held():
  """Blocks signals, so that processes started in this context never receive them.

  A terminal or a scheduler sends signals to all processes. The started processes inherit the mask.
  A signal that arrives in the meantime reaches the parent afterwards.
  """
  before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
  try:
    yield
  finally:
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def serve(descriptor: int):
  """The main function of a worker: receives its job, sends the items, ends with the parent."""
  parent = socket.socket(fileno=descriptor)
  try:
    job, index = _receive(parent)
    watch = threading.Thread(target=_leave_with, args=(parent,), daemon=True)
    watch.start()
    for message in _messages(job, index):
      _send(parent, message)
    watch.join()  # the parent has not read all of it yet
  except (EOFError, ConnectionError):
    os._exit(0)  # the parent is gone
  except BaseException:
    traceback.print_exc()
    os._exit(1)  # at once: a normal exit would wait for threads that still read


def _leave_with(parent: socket.socket):
  """Ends this process at once when the parent has ended or closed the socket."""
  try:
    parent.recv(1)
  finally:
    # The parent may have ended because of one of these images, and can name only its own.
    print("\n".join(at_work.in_words(least=_LONG)), end="", file=sys.stderr, flush=True)
    os._exit(0)


def _messages(job: bytes, index: int) -> Iterator[tuple[str, Any]]:
  """Yields all messages of a worker: its items, then its end or its error."""
  try:
    for item in pickle.loads(job)(index):
      yield _ITEM, item
  except Exception as error:
    yield _ERROR, _portable(error)
  else:
    yield _END, None


def _portable(error: Exception) -> Exception:
  """The error with its traceback as a note; an error with the text alone if it is not picklable."""
  where = traceback.format_exc()
  try:
    error = pickle.loads(pickle.dumps(error))
  except Exception:
    return RuntimeError(f"In a decoding process:\n{where}")
  error.add_note(f"In a decoding process:\n{where}")
  return error


def _send(to: socket.socket, message):
  """Sends any picklable message; sends the bytes of arrays without copying them."""
  buffers: list[pickle.PickleBuffer] = []
  body = pickle.dumps(message, protocol=5, buffer_callback=buffers.append)
  parts = [memoryview(body), *(buffer.raw() for buffer in buffers)]
  sizes = [len(parts), *(part.nbytes for part in parts)]
  to.sendall(b"".join(_SIZE.pack(size) for size in sizes))
  for part in parts:
    to.sendall(part)


def _receive(by: socket.socket):
  """The next message; raises EOFError if the other side is gone."""
  count = _SIZE.unpack(_read(by, _SIZE.size))[0]
  sizes = [_SIZE.unpack(_read(by, _SIZE.size))[0] for _ in range(count)]
  body, *buffers = [_read(by, size) for size in sizes]
  return pickle.loads(body, buffers=buffers)


def _read(by: socket.socket, size: int) -> memoryview:
  """Reads `size` bytes."""
  data = memoryview(np.empty(size, np.uint8))  # a bytearray would be cleared first
  done = 0
  while done < size:
    got = by.recv_into(data[done:], size - done, socket.MSG_WAITALL)
    if not got:
      raise EOFError
    done += got
  return data


if __name__ == "__main__":
  serve(int(sys.argv[1]))
