"""Writes one checkpoint, into a temporary folder; `saving` says how processes and threads do it."""

import asyncio
import contextlib
import json
import logging
import os
import threading
from collections.abc import Callable

import jax
import orbax.checkpoint as ocp
from etils import epath
from orbax.checkpoint._src import asyncio_utils

from vit_jax.process import agreement, limits
from vit_jax.storage import files, manifest
from vit_jax.storage.checkpoint import META, os_error_in
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
    self._handler = ocp.StandardCheckpointHandler()
    self._place = folder  # where orbax writes it
    self._state = BUSY
    self._phases: list[Callable[[], None]] = []

  def begin(self, tree: dict):
    """Makes the folder and starts to write `tree`; returns when the arrays may be donated."""
    self._state = agreement.of_first(self._make_folder)
    if self._state != DONE:
      return
    self._place = files.place_to_fill(self._folder)
    if self._place != self._folder:  # orbax waits for the first process to make this one
      files.make_folder(self._place / "state" / "array_metadatas")
    target = epath.Path(str(self._place / "state"))  # orbax takes no other kind of path
    writing = _run(self._handler.async_save(target, args=ocp.args.StandardSave(tree)))
    write = lambda: _wait(writing)
    complete = self._complete if jax.process_index() == 0 else lambda: None
    if jax.process_count() == 1:  # nobody to wait for
      self._phases = [lambda: (write(), self._merge(), complete())]
    elif self._place == self._folder:
      self._phases = [write, lambda: (self._merge(), complete())]
    else:  # each process sees its own part alone; `checkpoint` merges what it has copied
      self._phases = [lambda: (write(), self._bring()), complete]
    self._next()

  def _merge(self):
    if jax.process_index() == 0:
      self._handler.finalize(epath.Path(str(self._place / "state")))

  def _bring(self):
    """Brings this process's part from its own place to the folder of all."""
    files.make_durable(self._place, self._folder)
    self._place = self._folder

  def _make_folder(self) -> str:
    """Makes the folder. The workdir is never made anew on the way: it may have been moved."""
    try:
      workdir = self._folder.parents[1]
      if not files.is_folder(workdir):
        return f"the folder {workdir} is gone"
      if not files.is_folder(self._folder.parent):
        logging.warning("%s was removed; it is made anew.", self._folder.parent)
      files.remove(self._folder)  # a killed run may have left a part that nobody sees
      files.make_folder(self._folder / "state")
    except OSError as error:
      return reason_of(error)
    return DONE

  def _next(self):
    self._state, phase = BUSY, self._phases.pop(0)
    threading.Thread(target=self._go_through, args=(phase,), name="save", daemon=True).start()

  def _go_through(self, phase):
    try:
      phase()
    except Exception as error:  # orbax passes on any exception of its parts: OSError, ValueError...
      self._state = self._why(error)
      if self._place != self._folder:
        files.remove(self._place)
    else:
      self._state = DONE

  def _why(self, error) -> str:
    """Why writing failed. Without the folder, orbax's own words are of other things."""
    with contextlib.suppress(OSError):  # a bucket that does not answer
      if not files.is_folder(self._folder):
        return f"the folder {self._folder} was removed"
    return reason_of(error)

  def _complete(self):
    """Completes the folder, the manifest last: no checkpoint lacks it, or has a file it lacks."""
    files.make_folder((self._place / META).parent)
    files.write_text(self._place / META, json.dumps(self._meta))
    manifest.write(self._place)
    files.make_durable(self._place, self._folder)
    self._publish()

  def progress(self) -> str:
    """`BUSY`, `DONE`, or why it failed; begins the next phase when all processes are done."""
    states = agreement.texts(self._state)
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


def _run(coroutine):
  """The result of a coroutine, in an event loop of its own, which ends when all of its tasks have.

  When one write of a save fails, others are under way. In a loop that is closed each of them would
  print a traceback, and they would go on writing to a folder that is being removed.
  """
  loop = asyncio.new_event_loop()
  try:
    return loop.run_until_complete(coroutine)
  finally:
    while tasks := asyncio.all_tasks(loop):
      loop.run_until_complete(asyncio.wait(tasks))
      for task in tasks:
        _ = task.cancelled() or task.exception()  # asked for, so that nobody misses it
    loop.close()


def _wait(parts: list):
  """Waits until no part of a save writes any longer; then raises what the first failed with.

  A chain of orbax raises as soon as one of its parts fails, while the others still write to the
  folder, which is removed next.
  """
  failures = []
  for part in parts:
    for each in (*getattr(part, "_futures", ()), part):
      try:
        each.result()
      except Exception as error:  # orbax passes on any exception
        failures.append(error)
  if failures:
    raise failures[0]


def prepare():
  """Lets Orbax's threads end all of their writes; hides errors that it logs and raises too."""
  asyncio_utils._run_sync_via_new_loop = _run
  logging.getLogger("absl").addFilter(_not_of_orbax)


def _not_of_orbax(record) -> bool:
  return "orbax" not in record.pathname


def reason_of(error: Exception) -> str:
  """Why a save failed, in a few words; if possible, the operating system's reason."""
  if code := os_error_in(error):
    return os.strerror(code)
  if isinstance(error, OSError) and error.strerror:
    return error.strerror
  if limit := limits.reached(error):
    return f"{limit}: raise the limit"
  return (str(error).strip() or type(error).__name__).splitlines()[0]
