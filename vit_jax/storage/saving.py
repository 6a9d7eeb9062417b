"""Saves and restores checkpoints: asynchronous, atomic, verified."""

import contextlib
import logging
import pathlib
import time

import jax
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils
from orbax.checkpoint.checkpoint_managers import preservation_policy as keeping

from vit_jax.config import StorageError
from vit_jax.process import shared_errors
from vit_jax.storage import files, manifest
from vit_jax.storage import workdir as workdirs
from vit_jax.storage.checkpoint import (
  FOLDER,
  CheckpointError,
  available,
  check_classes,
  damage_of,
  describe,
  load,
  read_meta,
  to_tree,
)
from vit_jax.storage.save_errors import SaveErrors, is_writing, reason_of

HALF_WRITTEN = ".orbax-checkpoint-tmp"
# Holds old checkpoints until they are removed: by one rename they are gone for all readers.
OLD = f"old{HALF_WRITTEN}"


class SaveError(StorageError):
  """A checkpoint could not be saved; the message says which, why, and which one is the last."""


class Checkpoints:
  """The checkpoints of one workdir; every process creates one object, with the same arguments."""

  def __init__(self, workdir: pathlib.Path, *, keep_last: int, keep_every: int):
    """Opens WORKDIR/checkpoints; keeps the newest `keep_last` and each `keep_every`th step."""
    self._directory = workdir.absolute() / FOLDER
    every = [keeping.EveryNSteps(keep_every)] if keep_every else []
    self._best = _Best()
    self._keep = keeping.AnyPreservationPolicy([keeping.LatestN(keep_last), self._best, *every])
    self._saving = None
    self._failure = ""
    self._failed = False
    self._errors = SaveErrors()
    self._remove_half_written()
    self._manager = self._open()

  def _open(self):
    # Orbax measures the time of a save by the wall clock. If the clock is set forward by more than
    # the limit, the save fails, so a single process has almost no limit. Several processes need
    # one, to notice that the save of another process failed.
    alone = jax.process_count() == 1
    background = ocp.AsyncOptions(
      timeout_secs=10**9 if alone else 600,
      # Otherwise threads wait ten minutes for a folder that cannot be made, and the program waits
      # for the threads before it ends.
      create_directories_asynchronously=False,
    )
    options = ocp.CheckpointManagerOptions(
      preservation_policy=self._keep,
      async_options=background,
      temporary_path_class=_Unpublished,
      todelete_subdir=OLD,
      lightweight_initialize=True,  # must not read checkpoints before their sums are compared
    )
    return ocp.CheckpointManager(self._directory, options=options)

  def save(self, state, meta: dict, *, best: int = 0) -> int:
    """Starts saving and returns the step; the arrays may be donated as soon as it returns.

    Call `failure` before the next save, to learn whether this one succeeded.

    Args:
      state: the state.
      meta: stored beside the state, as JSON: "config", the settings, and "class_names".
      best: step to keep even if it is not among the newest; 0: none.
    """
    self.wait()
    if jax.process_index() == 0:
      files.remove(self._directory / OLD)
    self._best.step = best
    self._saving, self._errors.heard = int(state.step), ""
    args = ocp.args.Composite(
      state=ocp.args.StandardSave(to_tree(state)),
      meta=ocp.args.JsonSave(meta | {"arrays": describe(state)}),
    )
    with self._noting_failure():
      if not self._directory.is_dir():
        raise FileNotFoundError(f"the folder {self._directory} is gone")
      if self._failed:  # after a failed save, the old manager is not reliable
        self._remove_half_written()
        self._manager, self._failed = self._open(), False
      self._manager.save(self._saving, args=args, force=True)
    return self._saving

  def wait(self):
    """Waits until the current save, if any, is complete on disk or has failed."""
    several = jax.process_count() > 1
    if several and self._failed:
      return  # orbax would wait for the other processes, which wait for this one
    with self._noting_failure():
      while several and is_writing():
        if self._errors.heard:
          raise self._errors.error
        time.sleep(0.01)
      self._manager.wait_until_finished()

  def failure(self, *, wait: bool) -> str:
    """One sentence on why a save failed, returned only once; empty if none failed.

    Args:
      wait: for the current save. Otherwise a failure may only be returned by a later call.
    """
    if wait or self._errors.heard:
      self.wait()
    told, self._failure = self._failure, ""
    return told

  def close(self):
    """Completes the current save; logs a failure that `failure` has not yet returned."""
    failure = self.failure(wait=True)
    if failure:
      logging.warning(failure)
    if self._failed and jax.process_count() > 1:
      return
    with self._noting_failure():
      self._manager.close()
    self._remove_half_written()  # after a failure again: threads may have written on
    if self._errors.needed:
      self._errors.end_what_was_given_up()
    else:
      self._errors.close()

  def made_with(self, step: int) -> dict:
    """The settings of the run that saved `step`."""
    return read_meta(self._directory / str(step))["config"]

  def last_step(self) -> int | None:
    """The newest complete step, or None."""
    self.wait()
    return max(available(self._directory.parent), default=None)

  @contextlib.contextmanager
  def _noting_failure(self):
    try:
      yield
    except Exception as error:  # orbax passes on any exception of its parts: OSError, ValueError...
      # If a computation shared by the hosts fails, one host is gone; the watchdog says which.
      if jax.process_count() > 1 and shared_errors.is_of_others(error):
        raise
      reason = reason_of(error)
    else:
      return
    if (self._directory / str(self._saving)).is_dir():  # saved, but an old one was not removed
      logging.warning("After checkpoint %s was saved: %s.", self._saving, reason)
      return
    self._failure, self._failed = self._describe_failure(reason), True
    self._errors.needed = True
    if jax.process_count() == 1:  # other processes may still be writing
      self._remove_half_written()

  def _describe_failure(self, reason):
    steps = available(self._directory.parent)
    last = f"the last good one is {self._directory / str(steps[-1])}" if steps else "there is none"
    return f"Checkpoint {self._directory / str(self._saving)} could not be saved ({reason}); {last}"

  def _remove_half_written(self):
    if jax.process_index() == 0:
      for folder in self._directory.glob(f"*{HALF_WRITTEN}*"):
        files.remove(folder)

  def restore(self, abstract, meta: dict):
    """The state in the newest undamaged checkpoint, or None if there are no checkpoints.

    Damaged checkpoints are moved to WORKDIR/checkpoints-damaged, so that the run can save those
    steps again.

    Args:
      abstract: shapes, types and shardings of the state, by the current config.
      meta: as for `save`.

    Raises:
      CheckpointError: all checkpoints are damaged.
      ConfigError: the arrays or the classes do not fit.
    """
    steps = sorted(files.numbers_in(self._directory), reverse=True)
    for step in steps:
      damage = damage_of(self._directory / str(step))
      if not damage:
        check_classes(self._directory / str(step), meta["class_names"])
        return load(self._directory / str(step), abstract, meta["config"])
      logging.warning(
        "CHECKPOINT %s IS DAMAGED AND IS NOT USED: %s.", self._directory / str(step), damage
      )
      self._set_aside(step)
    if steps:
      raise CheckpointError(
        f"All checkpoints in {self._directory} are damaged (steps {steps}; now moved to "
        f"{self._aside()}). Start again to train from the beginning."
      )
    return None

  def _aside(self):
    return self._directory.with_name(FOLDER + "-damaged")

  def _set_aside(self, step):
    if jax.process_index() == 0:
      with workdirs.writing(self._directory.parent):
        files.make_folder(self._aside())
        files.set_aside(self._directory / str(step), self._aside() / str(step))
    if jax.process_count() > 1:
      multihost_utils.sync_global_devices(f"checkpoint {step} set aside")
    self._manager.close()
    self._manager = self._open()


class _Unpublished(ocp.path.atomicity.AtomicRenameTemporaryPath):
  """The temporary folder of a checkpoint, or of an item in it, until it gets its final name.

  The manifest is written just before the final rename, when orbax has written all its files. So a
  checkpoint never exists without a manifest, or with a file that the manifest lacks. For orbax,
  the final name is another temporary name, and this class does the last rename.
  """

  @classmethod
  def from_final(cls, final_path, **options):
    item = final_path.name in manifest.ITEMS
    passing = final_path if item else final_path.with_name(f"{final_path.name}{HALF_WRITTEN}-whole")
    return super().from_final(passing, **options)

  def get_final(self):
    passing = super().get_final()
    return passing.with_name(passing.name.partition(HALF_WRITTEN)[0])

  async def finalize(self):
    await super().finalize()
    final, passing = self.get_final(), super().get_final()
    if final != passing:
      manifest.write(pathlib.Path(passing))
      files.rename(passing, final)


class _Best(keeping.PreservationPolicy):
  """Keeps the checkpoint of `step`."""

  step = 0

  def should_preserve(self, checkpoints, *, context) -> list[bool]:
    return [info.step == self.step for info in checkpoints]
