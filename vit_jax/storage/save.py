"""Writes one checkpoint into a temporary folder; `saving` explains the processes and threads."""

import errno
import json
import logging
import os
import threading
from collections.abc import Callable

import jax

from vit_jax.process import agreement, limits
from vit_jax.storage import arrays, files, manifest
from vit_jax.storage.checkpoint import META, STATE, os_error_in
from vit_jax.storage.paths import Path

# The progress of a process; any other text says why it failed.
BUSY = "busy"
DONE = ""


class Save:
  """One attempt to save a state, in a temporary folder.

  Attributes:
    step: the step of the state, for messages.
  """

  def __init__(self, folder: Path, meta: dict, publish: Callable[[], None]):
    """Prepares to save; `publish` is called in the first process when the folder is complete."""
    self.step = int(folder.name.partition(".")[0])
    self._folder = folder
    self._meta = meta
    self._publish = publish
    self._state = BUSY
    self._phases: list[Callable[[], None]] = []

  def begin(self, named: dict[str, jax.Array]):
    """Makes the folder and starts to write arrays; returns when they may be donated."""
    self._state = agreement.broadcast_str(self._make_folder)
    if self._state != DONE:
      return
    try:
      plans = arrays.plans(named)
      mine = arrays.shares(named, plans)
    except Exception as error:  # JAX's errors have no common base; `progress` tells the others
      self._state = reason_of(error)
      return
    wanted = {name: (x.shape, plans[name].chunk) for name, x in named.items()}
    self._phases = self._phases_of(mine, wanted)
    self._next()

  def _phases_of(self, mine, wanted) -> list[Callable[[], None]]:
    """The phases of this process; the next one begins when all processes have ended the last."""

    def write_all():
      self._write(mine)
      self._complete(wanted)

    def write_and_sum():
      self._write(mine)
      self._sum()

    if jax.process_count() == 1:
      return [write_all]
    if jax.process_index() == 0:
      return [write_and_sum, lambda: self._complete(wanted)]
    return [write_and_sum, lambda: None]

  def _make_folder(self) -> str:
    """Makes the folder, but never the workdir, which may have been moved."""
    try:
      workdir = self._folder.parents[1]
      if not files.is_folder(workdir):
        return f"the folder {workdir} is gone"
      if not files.is_folder(self._folder.parent):
        logging.warning("%s was removed; it is made anew.", self._folder.parent)
      files.remove(self._folder)  # a killed run may have left invisible files
      files.make_folder((self._folder / META).parent)
      files.make_folder(self._folder / STATE)
      # First, so that the folder exists in a bucket too.
      files.write_text(self._folder / META, json.dumps(self._meta))
    except OSError as error:
      return reason_of(error)
    return DONE

  def _write(self, mine):
    arrays.write(files.kvstore(self._folder / STATE), jax.process_index(), mine)

  def _sum(self):
    """Hashes the files of this process, so that the first one need not read them."""
    manifest.write_part(self._folder, f"{STATE}/{arrays.OF_PROCESS}", jax.process_index())

  def _complete(self, wanted):
    """Completes the folder, the manifest last, and publishes it.

    So every checkpoint has a manifest, and the manifest lists all its files.
    """
    arrays.merge(files.kvstore(self._folder / STATE), jax.process_count(), wanted)
    if not files.is_file(self._folder / META):  # TensorStore makes removed folders again
      raise FileNotFoundError(errno.ENOENT, f"the folder {self._folder} was removed")
    manifest.write(self._folder)
    files.make_durable(self._folder)
    self._publish()

  def _next(self):
    self._state = BUSY
    phase = self._phases.pop(0)
    threading.Thread(target=self._go_through, args=(phase,), name="save", daemon=True).start()

  def _go_through(self, phase):
    try:
      phase()
    except Exception as error:  # OSErrors of files, ValueErrors of TensorStore
      self._state = self._why(error)
    else:
      self._state = DONE

  def _why(self, error) -> str:
    """Why writing failed; TensorStore's message for a removed folder is long."""
    try:
      if not files.is_folder(self._folder):
        return f"the folder {self._folder} was removed"
    except OSError as folder_error:  # a bucket that does not answer
      return reason_of(folder_error)
    return reason_of(error)

  def progress(self) -> str:
    """`BUSY`, `DONE`, or why it failed; begins the next phase when all processes are done."""
    states = agreement.allgather_str(self._state)
    for process, state in enumerate(states):
      if state in (BUSY, DONE):
        continue
      if len(states) == 1:
        return state
      return f"{state}, in process {process}"
    if BUSY in states:
      return BUSY
    if self._phases:
      self._next()
      return BUSY
    return DONE


def reason_of(error: Exception) -> str:
  """Why a save failed, in a few words; the operating system's reason if there is one."""
  if code := os_error_in(error):
    return os.strerror(code)
  if isinstance(error, OSError) and error.strerror:
    return error.strerror
  if limit := limits.reached(error):
    return f"{limit}: raise the limit"
  return (str(error).strip() or type(error).__name__).splitlines()[0]
