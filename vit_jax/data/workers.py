"""Items made by processes of their own, in order.

Parent and worker share one socket, and no lock and no memory: whatever ends either of them closes
it, so the other one notices at once and nothing is left behind. Signals are the parent's alone.
Run as a program this is a worker; it is given the number of its end of the socket.
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

_END = "end"
_ITEM = "item"
_ERROR = "error"
_SIZE = struct.Struct("!Q")
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_PROGRAM = [sys.executable, "-P", "-m", "vit_jax.data.workers"]


class WorkerError(RunError):
  """A worker is gone; the message says which, how it ended, and what to do."""


class Workers:
  """Iterates over items that `count` processes make: item i is of process i % count.

  The processes start with the first item that is asked for.
  """

  def __init__(self, make: Callable[[int], Iterator], count: int):
    """Starts nothing yet.

    Args:
      make: make(worker) -> every count-th item, from number `worker` on; picklable, and of modules
        that can be imported. It runs ahead by itself: a worker waits until its item is taken.
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
      StopIteration: the process whose turn it is has no more.
      WorkerError: it is gone.
      Exception: what it raised.
    """
    if self._ended:
      raise StopIteration
    try:
      if not self._workers:
        self._start()
      item = self._workers[self._next % self._count].take()
    except BaseException:  # also an interrupt: an item half taken cannot be taken again
      self.close()
      raise
    self._next += 1
    return item

  def close(self):
    """Ends the processes; further items are not to be had."""
    self._ended = True
    for worker in self._workers:
      worker.kill()
    for worker in self._workers:
      worker.wait()
    self._workers = []

  def _start(self):
    job = pickle.dumps(self._make)
    # One after another into the list, so that those that did start are closed if one does not.
    for index in range(self._count):
      self._workers.append(_Worker(index, self._count))
    for worker in self._workers:  # all of them are starting by now
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
    """Ends the process at once: it only reads, so nothing can be left half done."""
    self._socket.close()
    self._process.kill()

  def wait(self):
    self._process.wait()

  def _gone(self) -> WorkerError:
    status = self._process.wait()
    return WorkerError(
      f"Decoding process {self._index + 1} of {self._count} (process {self._process.pid}) "
      f"{_ending(status)}. Start the same command again; if that does not help, with a smaller "
      f"config.data.workers, which is {self._count}."
    )


def _ending(status: int) -> str:
  """How a process ended, in words; negative: by a signal."""
  if status == -signal.SIGKILL:
    return "was killed (SIGKILL), which the system does where memory runs out"
  if status < 0:
    return f"was ended by signal {-status} ({signal.strsignal(-status)})"
  return f"ended with status {status}; what it said stands above"


def _start_process() -> tuple[socket.socket, subprocess.Popen]:
  """A new worker, and the parent's end of the socket."""
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
  """Processes that are started meanwhile never hear what a terminal or a scheduler sends to all.

  They inherit the mask. A signal that comes in the meantime reaches the parent afterwards.
  """
  before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
  try:
    yield
  finally:
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def serve(descriptor: int):
  """A worker's life: takes its job, sends item after item, and goes when the parent does."""
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
    os._exit(1)  # at once, because threads may still read


def _leave_with(parent: socket.socket):
  """Ends this process, whatever it does, when the parent is gone or wants no more."""
  try:
    parent.recv(1)
  finally:
    os._exit(0)


def _messages(job: bytes, index: int) -> Iterator[tuple[str, Any]]:
  """All that a worker has to say."""
  try:
    for item in pickle.loads(job)(index):
      yield _ITEM, item
  except Exception as error:
    yield _ERROR, _portable(error)
  else:
    yield _END, None


def _portable(error: Exception) -> Exception:
  """The error, with where it was raised; its text alone where it cannot be sent."""
  where = traceback.format_exc()
  try:
    error = pickle.loads(pickle.dumps(error))
  except Exception:
    return RuntimeError(f"In a decoding process:\n{where}")
  error.add_note(f"In a decoding process:\n{where}")
  return error


def _send(to: socket.socket, message):
  """Sends anything that can be pickled; the bytes of arrays go as they lie in memory."""
  buffers: list[pickle.PickleBuffer] = []
  body = pickle.dumps(message, protocol=5, buffer_callback=buffers.append)
  parts = [memoryview(body), *(buffer.raw() for buffer in buffers)]
  sizes = [len(parts), *(part.nbytes for part in parts)]
  to.sendall(b"".join(_SIZE.pack(size) for size in sizes))
  for part in parts:
    to.sendall(part)


def _receive(by: socket.socket):
  """The next message; EOFError where the other side is gone."""
  count = _SIZE.unpack(_read(by, _SIZE.size))[0]
  sizes = [_SIZE.unpack(_read(by, _SIZE.size))[0] for _ in range(count)]
  body, *buffers = [_read(by, size) for size in sizes]
  return pickle.loads(body, buffers=buffers)


def _read(by: socket.socket, size: int) -> memoryview:
  """That many bytes."""
  data = memoryview(np.empty(size, np.uint8))  # not cleared first, as a bytearray would be
  done = 0
  while done < size:
    got = by.recv_into(data[done:], size - done, socket.MSG_WAITALL)
    if not got:
      raise EOFError
    done += got
  return data


if __name__ == "__main__":
  serve(int(sys.argv[1]))
