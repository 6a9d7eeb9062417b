"""Writes one checkpoint, into a temporary folder; `saving` says how processes and threads do it."""

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

BUSY, DONE = "busy", ""  # how far a process is with its part; any other text says why it failed


class Save:
  """One try to save a state, in a temporary folder.

  Attributes:
    step: the step of the state, for messages.
  """

  def __init__(self, folder: Path, meta: dict, publish: Callable[[], None]):
    """Prepares to save; `publish` is called in the first process when the folder is complete."""
    self.step = int(folder.name.partition(".")[0])
    self._folder, self._meta, self._publish = folder, meta, publish
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
    except Exception as error:  # `progress` tells the others; JAX has no common one
      self._state = reason_of(error)
      return
    wanted = {name: (x.shape, plans[name].chunk) for name, x in named.items()}
    complete = (lambda: self._complete(wanted)) if jax.process_index() == 0 else lambda: None
    if jax.process_count() == 1:  # nobody to wait for
      self._phases = [lambda: (self._write(mine), complete())]
    else:
      self._phases = [lambda: (self._write(mine), self._sum()), complete]
    self._next()

  def _make_folder(self) -> str:
    """Makes the folder. The workdir is never made anew on the way: it may have been moved."""
    try:
      workdir = self._folder.parents[1]
      if not files.is_folder(workdir):
        return f"the folder {workdir} is gone"
      if not files.is_folder(self._folder.parent):
        logging.warning("%s was removed; it is made anew.", self._folder.parent)
      files.remove(self._folder)  # a killed run may have left a part that nobody sees
      files.make_folder((self._folder / META).parent)
      files.make_folder(self._folder / STATE)
      # First, so that the folder is there in a bucket too.
      files.write_text(self._folder / META, json.dumps(self._meta))
    except OSError as error:
      return reason_of(error)
    return DONE

  def _write(self, mine):
    arrays.write(files.kvstore(self._folder / STATE), jax.process_index(), mine)

  def _sum(self):
    """Sums what this process wrote, so that the first one need not read it."""
    manifest.write_part(self._folder, f"{STATE}/{arrays.OF_PROCESS}", jax.process_index())

  def _complete(self, wanted):
    """Completes the folder, the manifest last, and publishes it.

    So no checkpoint lacks its manifest, or has a file that this lacks.
    """
    arrays.merge(files.kvstore(self._folder / STATE), jax.process_count(), wanted)
    if not files.is_file(self._folder / META):  # TensorStore makes anew what was removed
      raise FileNotFoundError(errno.ENOENT, f"the folder {self._folder} was removed")
    manifest.write(self._folder)
    files.make_durable(self._folder)
    self._publish()

  def _next(self):
    self._state, phase = BUSY, self._phases.pop(0)
    threading.Thread(target=self._go_through, args=(phase,), name="save", daemon=True).start()

  def _go_through(self, phase):
    try:
      phase()
    except Exception as error:  # OSErrors of files, ValueErrors of TensorStore
      self._state = self._why(error)
    else:
      self._state = DONE

  def _why(self, error) -> str:
    """Why writing failed. TensorStore's words for what the folder itself can tell are long."""
    try:
      if not files.is_folder(self._folder):
        return f"the folder {self._folder} was removed"
    except OSError as of_folder:  # a bucket that does not answer
      return reason_of(of_folder)
    return reason_of(error)

  def progress(self) -> str:
    """`BUSY`, `DONE`, or why it failed; begins the next phase when all processes are done."""
    states = agreement.allgather_str(self._state)
    failures = {process: text for process, text in enumerate(states) if text not in (BUSY, DONE)}
    if failures:
      process, reason = min(failures.items())
      return reason if len(states) == 1 else f"{reason}, in process {process}"
    if BUSY in states:
      return BUSY
    if self._phases:
      self._next()
      return BUSY
    return DONE


def reason_of(error: Exception) -> str:
  """Why a save failed, in a few words; if possible, the operating system's reason."""
  if code := os_error_in(error):
    return os.strerror(code)
  if isinstance(error, OSError) and error.strerror:
    return error.strerror
  if limit := limits.reached(error):
    return f"{limit}: raise the limit"
  return (str(error).strip() or type(error).__name__).splitlines()[0]
