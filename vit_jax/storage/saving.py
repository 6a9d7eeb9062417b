"""The `Checkpoints` of a run: saved in the background, published whole, pruned, and restored.

`training/callbacks.py` decides when to save; `Save` writes one checkpoint; `checkpoint` reads
checkpoints of any workdir; `arrays` writes and reads the arrays.

This module makes a complete checkpoint appear at once, and tells every process of a failure:

1. All processes begin together. The first one makes a temporary folder. Each copies its shares of
   the state from the devices, and writes them in a thread.
2. The training loop polls. When every process has written its shares, a thread of the first one
   completes the folder, syncs it to the disk, renames it, and removes old checkpoints.
3. If a process fails in 1 or 2, all learn of it at the next poll, and drop the folder.

A thread never waits for another process, so no failure can leave a process waiting.
"""

import contextlib
import errno
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable

import jax

from vit_jax.process import agreement, machine
from vit_jax.process.errors import StorageError
from vit_jax.storage import arrays, files, manifest
from vit_jax.storage import workdir as workdirs
from vit_jax.storage.base import UnreachableError
from vit_jax.storage.checkpoint import (
  DAMAGED,
  META,
  STATE,
  CheckpointError,
  available,
  check_classes,
  damage_of,
  describe,
  load,
  os_error_in,
  read_meta,
)
from vit_jax.storage.paths import Path
from vit_jax.storage.tree import named

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
      parent = self._folder.parent
      # A bucket has no folder before the first save.
      if files.storage_of(parent).direct and not files.is_folder(parent):
        logging.warning("%s was removed; it is made anew.", parent)
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
  if limit := machine.reached(error):
    return f"{limit}: raise the limit"
  return (str(error).strip() or type(error).__name__).splitlines()[0]


HALF_WRITTEN = ".orbax-checkpoint-tmp"  # the name that earlier versions gave, with Orbax
# Holds old checkpoints until they are removed: one rename hides them from all readers.
OLD = f"old{HALF_WRITTEN}"


class SaveError(StorageError):
  """A checkpoint could not be saved; the message says which and why, and names the last one."""


class Checkpoints:
  """The checkpoints of one workdir.

  Every process makes one object, with the same arguments, and calls its methods at the same steps.
  """

  def __init__(self, workdir: Path, *, keep_last: int, keep_every: int):
    """Opens WORKDIR/checkpoints; keeps the newest `keep_last` and each `keep_every`th step.

    Checkpoints say whether they are kept for good: a later start may have another `keep_every`.
    """
    self._directory = workdir.absolute() / workdirs.CHECKPOINTS
    self._keep_last = keep_last
    self._keep_every = keep_every
    self._kept: dict[int, bool] = {}  # whether a step is kept for good, as far as known
    self._saving: Save | None = None
    self._outcome: str | None = None
    self._saves = 0
    self._failed: int | None = None  # the step whose save failed last
    if jax.process_index() == 0:
      files.make_folder(self._directory)
      self._remove_half_written()

  def save(self, state, meta: dict, *, best: int = 0) -> int:
    """Starts saving and returns the step; the arrays may be donated as soon as it returns.

    Args:
      state: the state.
      meta: stored with the state, as JSON: "config" (the settings), "class_names" and others;
        "step", "kept" (for good) and "arrays" are added.
      best: step to keep even if it is not among the newest; 0: none.
    """
    self.wait()
    workdirs.check_held(self._directory.parent)
    step = int(state.step)
    self._saves += 1
    self._outcome = None
    folder = self._directory / f"{step}{HALF_WRITTEN}-{self._saves}"
    self._kept[step] = self._is_kth(step)
    described = meta | {"step": step, "kept": self._kept[step], "arrays": describe(state)}
    self._saving = Save(folder, described, lambda: self._publish(folder, step, best))
    self._saving.begin(named(state))
    return step

  def _publish(self, folder, step, best):
    workdirs.check_held(self._directory.parent)
    target = self._directory / str(step)
    if step == self._failed and step in available(self._directory.parent):
      files.remove(folder)  # the failed save was published, but the answer did not arrive
    else:
      if not files.exists(target):
        # In a bucket, a folder with a tombstone does not exist for readers, but its files do.
        files.remove(target)
      files.rename(folder, target)
    consequence = "it may be lost if the machine crashes"
    try:
      # Sync before older checkpoints are removed, because a crash could undo the rename after that.
      # The parents may be new too.
      for parent in (self._directory, *self._directory.parents[:2]):
        files.sync(parent)
      consequence = "older ones could not be removed"
      self._prune(best)
    except OSError as error:
      logging.warning("Checkpoint %s is saved, but %s (%s).", step, consequence, reason_of(error))

  def prune(self, *, best: int):
    """Removes old checkpoints in the first process; `best` as for `save`. Logs failures."""
    self.wait()
    if jax.process_index() != 0:
      return
    workdirs.check_held(self._directory.parent)
    try:
      self._prune(best)
    except OSError as error:
      logging.warning("Older checkpoints could not be removed (%s).", reason_of(error))

  def _prune(self, best):
    steps = available(self._directory.parent)
    best_kept = max([step for step in steps if step <= best], default=0)
    for step in steps[: -self._keep_last]:
      if step != best_kept and not self._is_kept(step):
        self._remove(step)

  def _remove(self, step):
    """Removes a checkpoint, which all readers see whole or not at all."""
    folder = self._directory / str(step)
    if files.storage_of(folder).direct:  # in a bucket it disappears at once; a rename would copy it
      files.make_folder(self._directory / OLD)
      files.rename(folder, self._directory / OLD / str(step))
      folder = self._directory / OLD
    files.remove(folder)

  def _is_kept(self, step) -> bool:
    """Whether a checkpoint is kept for good; read only once."""
    if step not in self._kept:
      try:
        meta = self.meta(step)
      except UnreachableError:
        raise
      except (OSError, ValueError):  # damaged
        meta = {}
      # Earlier versions did not record it.
      self._kept[step] = bool(meta.get("kept", self._is_kth(step)))
    return self._kept[step]

  def _is_kth(self, step) -> bool:
    return bool(self._keep_every) and step % self._keep_every == 0

  def look(self):
    """Polls the current save, in all processes together; `outcome` returns the result."""
    if self._saving is None:
      return
    reason = self._saving.progress()
    if reason == BUSY:
      return
    step = self._saving.step
    self._saving = None
    if reason == DONE:
      self._outcome = ""
      return
    workdirs.check_held(self._directory.parent)
    if jax.process_index() == 0:
      with contextlib.suppress(OSError):  # the next start removes the rest
        self._remove_half_written()
    self._failed = step
    self._outcome = self._describe_failure(step, reason)

  @property
  def under_way(self) -> bool:
    """Whether the last save has not ended yet, or its result is not known yet."""
    return self._saving is not None

  def wait(self):
    """Waits until the current save, if any, is complete on disk or has failed."""
    while self.under_way:
      self.look()
      time.sleep(0.01)

  def outcome(self) -> str | None:
    """The result of the last save, returned only once.

    Returns:
      "" if it was saved, one sentence if it failed; None if it is under way, or there is nothing
      new.
    """
    outcome = self._outcome
    self._outcome = None
    return outcome

  def close(self):
    """Completes the current save, if there is one process; of several, one may be gone already."""
    if jax.process_count() == 1:
      self.wait()
      if failure := self.outcome():
        logging.warning(failure)

  def meta(self, step: int) -> dict:
    """The `meta` that was stored with the state of `step`."""
    return read_meta(self._directory / str(step))

  def last_step(self) -> int | None:
    """The newest complete step, or None."""
    self.wait()
    return max(available(self._directory.parent), default=None)

  def _describe_failure(self, step, reason):
    last = "there is none"
    try:
      steps = available(self._directory.parent)
      if steps:
        last = f"the last good one is {self._directory / str(steps[-1])}"
    except OSError:
      last = "the earlier ones cannot be listed now"
    return f"Checkpoint {self._directory / str(step)} could not be saved ({reason}); {last}"

  def _remove_half_written(self):
    for folder in files.matching(self._directory, f"*{HALF_WRITTEN}*"):
      files.remove(folder)

  def restore(self, abstract, class_names: Iterable[str], changes: Callable[[dict], list[str]]):
    """The state in the newest undamaged checkpoint, or None if there are no checkpoints.

    Damaged checkpoints are renamed to STEP.damaged, so that the run can save those steps again.

    Args:
      abstract: shapes, types and shardings of the state, by the current config.
      class_names: of the training data.
      changes: as in `check_compatible`.

    Raises:
      CheckpointError: all checkpoints are damaged, or the newest one differs from its description.
      ConfigError: the arrays or the classes do not fit.
    """
    steps = sorted(files.numbers_in(self._directory), reverse=True)
    for step in steps:
      folder = self._directory / str(step)
      damage = damage_of(folder)
      if not damage:
        check_classes(folder, read_meta(folder), class_names)
        return load(folder, abstract, changes)
      logging.warning("CHECKPOINT %s IS DAMAGED AND IS NOT USED: %s.", folder, damage)
      self._set_aside(step)
    if steps:
      raise CheckpointError(
        f"All checkpoints in {self._directory} are damaged (steps {steps}; now renamed to "
        f"STEP{DAMAGED}). To begin anew, give another --workdir."
      )
    return None

  def _set_aside(self, step):
    if jax.process_index() == 0:
      with workdirs.writing(self._directory.parent):
        # In the same folder, because that may be a link to another disk.
        files.set_aside(self._directory / str(step), self._directory / f"{step}{DAMAGED}")
    agreement.broadcast_str(str)  # all processes wait for it
