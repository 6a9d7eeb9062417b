"""Checkpoints: asynchronous, atomic, verified. The only module that imports orbax.

WORKDIR/checkpoints/STEP/ holds the state (orbax's own files), meta (JSON: config, class names,
shape and type of every array) and manifest.json, the SHA-256 sum of every other file. All appear
together, by one rename.
"""

import contextlib
import json
import logging
import os
import pathlib
import re
import shutil
import sys
import threading
import time
import traceback
from collections.abc import Iterable

import jax
import numpy as np
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils
from orbax.checkpoint.checkpoint_managers import preservation_policy as keeping

from vit_jax import hosts, manifest
from vit_jax import workdir as workdirs
from vit_jax.config import EARLIER, NAMED, ConfigError, RunError, StorageError, to_dict
from vit_jax.data.classes import first_difference
from vit_jax.optim import name_of
from vit_jax.state import TrainState
from vit_jax.tree import flatten, nest

FOLDER = "checkpoints"
HALF_WRITTEN = ".orbax-checkpoint-tmp"


class CheckpointError(RunError):
  """No checkpoint can be used; the message says which and why."""


class SaveError(StorageError):
  """A checkpoint could not be saved; the message says which, why, and what there is instead."""


class Checkpoints:
  """The checkpoints of one workdir; every process of a run makes one, with the same arguments."""

  def __init__(self, workdir: pathlib.Path, *, keep_last: int, keep_every: int):
    """Opens WORKDIR/checkpoints, keeping the newest `keep_last` and each `keep_every`th step."""
    self._directory = workdir.absolute() / FOLDER
    every = [keeping.EveryNSteps(keep_every)] if keep_every else []
    self._best = _Best()
    self._keep = keeping.AnyPreservationPolicy([keeping.LatestN(keep_last), self._best, *every])
    self._saving = None
    self._failure = ""
    self._failed = False
    self._ear = _Ear()
    self._remove_half_written()
    self._manager = self._open()

  def _open(self):
    # Orbax takes the time of a save by the clock of the day: one that is put forward by more than
    # this would fail it. Several processes need the limit, to notice when another's save failed.
    alone = jax.process_count() == 1
    background = ocp.AsyncOptions(
      timeout_secs=10**9 if alone else 600,
      # Otherwise threads wait ten minutes for a folder that cannot be made, and the program's end
      # for them.
      create_directories_asynchronously=False,
    )
    options = ocp.CheckpointManagerOptions(
      preservation_policy=self._keep,
      async_options=background,
      temporary_path_class=_Unpublished,
      lightweight_initialize=True,  # reads nothing of checkpoints whose sums were not yet compared
    )
    return ocp.CheckpointManager(self._directory, options=options)

  def save(self, state: TrainState, meta: dict, *, best: int = 0) -> int:
    """Starts saving; the arrays may be donated as soon as it returns. Returns the step.

    Whether it succeeds is for `failure` to tell, before the next save.

    Args:
      state: the state.
      meta: what is kept beside it, for JSON: "config", the settings, and "class_names".
      best: step that is kept even where it is not among the newest; 0: none.
    """
    self.wait()
    self._best.step = best
    self._saving, self._ear.heard = int(state.step), ""
    args = ocp.args.Composite(
      state=ocp.args.StandardSave(to_tree(state)),
      meta=ocp.args.JsonSave(meta | {"arrays": describe(state)}),
    )
    with self._noting_failure():
      if not self._directory.is_dir():
        raise FileNotFoundError(f"the folder {self._directory} is gone")
      if self._failed:  # a manager whose save failed is not to be relied on
        self._remove_half_written()
        self._manager, self._failed = self._open(), False
      self._manager.save(self._saving, args=args, force=True)
    return self._saving

  def wait(self):
    """Returns once the save under way, if any, is complete on disk or has failed."""
    several = jax.process_count() > 1
    if several and self._failed:
      return  # orbax would wait for the others, which wait for this process
    with self._noting_failure():
      while several and _is_writing():
        if self._ear.heard:
          raise self._ear.error
        time.sleep(0.01)
      self._manager.wait_until_finished()

  def failure(self, *, wait: bool) -> str:
    """What kept a save from completing, in one sentence, told once; empty where there is nothing.

    Args:
      wait: for the save under way. Without it the answer may be empty now and not later.
    """
    if wait or self._ear.heard:
      self.wait()
    told, self._failure = self._failure, ""
    return told

  def close(self):
    """Completes the save under way; a failure that nobody has asked for is logged."""
    failure = self.failure(wait=True)
    if failure:
      logging.warning(failure)
    if self._failed and jax.process_count() > 1:
      return
    with self._noting_failure():
      self._manager.close()
    if self._failed:
      self._remove_half_written()  # again: threads may have written on after the failure
    elif not self._ear.needed:
      self._ear.close()

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
    except Exception as error:  # orbax passes on whatever its parts raise: OSError, ValueError, ...
      # Where a computation fails that hosts share, one of them is gone; the watchdog says which.
      if jax.process_count() > 1 and hosts.is_of_others(error):
        raise
      reason = reason_of(error)
    else:
      return
    if (self._directory / str(self._saving)).is_dir():  # saved; an older one could not be removed
      logging.warning("After checkpoint %s was saved: %s.", self._saving, reason)
      return
    self._failure, self._failed = self._describe_failure(reason), True
    self._ear.needed = True
    if jax.process_count() == 1:  # of several, others may still be writing
      self._remove_half_written()

  def _describe_failure(self, reason):
    steps = available(self._directory.parent)
    last = f"the last good one is {self._directory / str(steps[-1])}" if steps else "there is none"
    return f"Checkpoint {self._directory / str(self._saving)} could not be saved ({reason}); {last}"

  def _remove_half_written(self):
    if jax.process_index() == 0:
      for folder in self._directory.glob(f"*{HALF_WRITTEN}*"):
        shutil.rmtree(folder, ignore_errors=True)

  def restore(self, abstract: TrainState, meta: dict) -> TrainState | None:
    """The newest undamaged checkpoint, or None where there is none at all.

    Damaged ones are moved to WORKDIR/checkpoints-damaged, so that the run can save there again.

    Args:
      abstract: shapes, types and shardings of the state, as the config wants it.
      meta: what `save` would be given now.

    Raises:
      CheckpointError: all are damaged.
      ConfigError: the arrays or the classes do not fit.
    """
    steps = sorted(_numbers(self._directory), reverse=True)
    for step in steps:
      damage = _damage(self._directory / str(step))
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
        self._aside().mkdir(exist_ok=True)
        workdirs.set_aside(self._directory / str(step), self._aside() / str(step))
    if jax.process_count() > 1:
      multihost_utils.sync_global_devices(f"checkpoint {step} set aside")
    self._manager.close()
    self._manager = self._open()


class _Unpublished(ocp.path.atomicity.AtomicRenameTemporaryPath):
  """The folder of a checkpoint, or of an item in it, until it gets its final name.

  A checkpoint gets its manifest right before, when orbax has written the last of its files: one
  without a manifest, or with a file that is not in it, never exists. To orbax the final name is
  still a temporary one.
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
      passing.rename(final)


class _Best(keeping.PreservationPolicy):
  """Keeps the one checkpoint of `step`."""

  step = 0

  def should_preserve(self, checkpoints, *, context) -> list[bool]:
    return [info.step == self.step for info in checkpoints]


class _Ear(logging.Filter):
  """Hears from orbax's log that a save has failed, and keeps the tracebacks out of the user's.

  After a failure it listens to the end of the process: threads of the save may write on till then,
  and each of their arrays would tell that the event loop it belongs to is closed.

  Attributes:
    heard: what was the matter, in a few words; empty as long as nothing is.
    error: the same, as it was raised.
    needed: whether any save has failed.
  """

  _LOGGERS = ("absl", "asyncio")

  def __init__(self):
    super().__init__()
    self.heard, self.error, self.needed = "", None, False
    for name in self._LOGGERS:
      logging.getLogger(name).addFilter(self)
    self._hook, sys.unraisablehook = sys.unraisablehook, self._unraisable

  def _unraisable(self, event):
    if str(event.exc_value) != "Event loop is closed":
      self._hook(event)

  def filter(self, record: logging.LogRecord) -> bool:
    if not (record.exc_info and _of_orbax(record)):
      return True
    self.heard, self.error = reason_of(record.exc_info[1]), record.exc_info[1]
    return False

  def close(self):
    sys.unraisablehook = self._hook
    for name in self._LOGGERS:
      logging.getLogger(name).removeFilter(self)


def _of_orbax(record: logging.LogRecord) -> bool:
  """Whether a logged error is orbax's, which asyncio may tell of without naming it."""
  frames = traceback.extract_tb(record.exc_info[2])
  said = [record.pathname, record.getMessage(), *(frame.filename for frame in frames)]
  return any("orbax" in text for text in said)


def _is_writing() -> bool:
  return any(thread.name == "save_finalize" for thread in threading.enumerate())


def reason_of(error: Exception) -> str:
  """Why a save failed, in a few words: that of the operating system where there is one."""
  inside = re.search(r"os_error_code='(\d+)'", str(error))  # as tensorstore gives it
  code = int(inside[1]) if inside else getattr(error, "errno", None)
  if code:
    return os.strerror(code)
  return (str(error).strip() or type(error).__name__).splitlines()[0]


def available(workdir: pathlib.Path) -> list[int]:
  """The steps of a workdir's complete checkpoints, ascending; damaged ones included."""
  folder = workdir / FOLDER
  return [step for step in _numbers(folder) if (folder / str(step)).is_dir()]


def _numbers(folder: pathlib.Path) -> list[int]:
  """What is named as a step is, ascending; "007" and digits of other scripts are no such names."""
  names = [child.name for child in folder.iterdir()] if folder.is_dir() else []
  return sorted(int(name) for name in names if re.fullmatch("0|[1-9][0-9]*", name))


def _damage(folder: pathlib.Path) -> str:
  """What is wrong with a checkpoint, in words; empty where it is whole."""
  damage = manifest.agreed_damage(folder)
  if damage:
    return damage
  step = int(read_arrays(folder, ["step"])["step"])
  return "" if str(step) == folder.name else f"it is a copy of step {step}"


def find(workdir: pathlib.Path, step: int = 0) -> pathlib.Path:
  """The folder of checkpoint `step`, or of the newest that is undamaged where `step` is 0.

  Raises:
    CheckpointError: there is none, or the one asked for is damaged.
  """
  steps = available(workdir)
  if not steps or (step and step not in steps):
    known = f"there are steps {steps}" if steps else "there is no checkpoint at all"
    raise CheckpointError(
      f"{workdir} has no checkpoint{f' of step {step}' if step else ''}: {known}."
    )
  for candidate in [step] if step else reversed(steps):
    folder = workdir.absolute() / FOLDER / str(candidate)  # orbax reads no relative path
    damage = _damage(folder)
    if not damage:
      return folder
    logging.warning("CHECKPOINT %s IS DAMAGED AND IS NOT USED: %s.", folder, damage)
  raise CheckpointError(f"{folder} is damaged: {damage}.")


def load(folder: pathlib.Path, abstract: TrainState, config: dict) -> TrainState:
  """Reads a whole state with the shardings of `abstract`.

  Raises:
    ConfigError: as `check_fits`.
  """
  check_fits(folder, abstract, config)
  with _reader("state") as reader:
    tree = reader.restore(
      folder, args=ocp.args.Composite(state=ocp.args.StandardRestore(to_tree(abstract)))
    ).state
  return from_tree(tree, abstract)


def check_classes(folder: pathlib.Path, class_names: Iterable[str]):
  """Refuses to go on from a checkpoint of other classes than `class_names`, or in another order.

  Raises:
    ConfigError: names the first class that differs.
  """
  found, wanted = read_meta(folder)["class_names"], list(class_names)
  if found != wanted:
    difference = first_difference(found, wanted, "config.data.train")
    raise ConfigError(
      f"Checkpoint {folder} was trained on other classes, or on these in another order: "
      f"{difference}. Give it back the data that it was trained on; or begin a run with another "
      f"--workdir and --config.init_from={folder.parents[1]}, which orders the head by the names "
      "of classes."
    )


def check_fits(folder: pathlib.Path, wanted: TrainState, config: dict):
  """Compares a checkpoint's arrays with the shapes and types of `wanted`.

  Args:
    folder: the checkpoint.
    wanted: a state.
    config: the run's settings.

  Raises:
    ConfigError: they differ; the message names the first ones and the settings that differ
      between the two configs.
  """
  meta, wanted = read_meta(folder), describe(wanted)
  found = meta["arrays"]
  differing = sorted(
    name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name)
  )
  if differing:
    raise ConfigError(mismatch(folder, differing, wanted, found, meta["config"], config))


def load_params(folder: pathlib.Path, *, ema: bool) -> dict:
  """The parameters alone, or their moving average, as NumPy arrays.

  A parameter that was not trained has no average, and stands for itself.

  Raises:
    CheckpointError: a moving average is asked for and there is none.
  """
  arrays = read_meta(folder)["arrays"]
  if ema and not any(name.startswith("ema/") for name in arrays):
    raise CheckpointError(
      f"{folder} holds no moving average of the parameters "
      "(config.optimizer.ema was 0); leave --ema out."
    )
  names = [name.removeprefix("params/") for name in arrays if name.startswith("params/")]
  averaged = lambda name: ema and f"ema/{name}" in arrays
  stored = {name: f"ema/{name}" if averaged(name) else f"params/{name}" for name in names}
  found = read_arrays(folder, stored.values())
  return nest({name: found[place] for name, place in stored.items()})


def read_arrays(folder: pathlib.Path, names: Iterable[str]) -> dict[str, np.ndarray]:
  """Some of a checkpoint's arrays, by their names in its description ("params/head/kernel")."""
  arrays = read_meta(folder)["arrays"]
  described = {
    name: jax.ShapeDtypeStruct(tuple(shape), np.dtype(dtype))
    for name, (shape, dtype) in ((name, arrays[name]) for name in names)
  }
  tree = nest(described)
  restore_args = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), tree)
  with _reader("state", ocp.PyTreeCheckpointHandler()) as reader:
    restored = reader.restore(
      folder,
      args=ocp.args.Composite(
        state=ocp.args.PyTreeRestore(item=tree, restore_args=restore_args, partial_restore=True)
      ),
    ).state
  return flatten(restored)


def read_meta(folder: pathlib.Path) -> dict:
  """The checkpoint's config, class names and array descriptions."""
  with _reader("meta") as reader:
    return reader.restore(folder, args=ocp.args.Composite(meta=ocp.args.JsonRestore())).meta


@contextlib.contextmanager
def _reader(item, handler=None):
  handlers = {
    "state": handler or ocp.StandardCheckpointHandler(),
    "meta": ocp.JsonCheckpointHandler(),
  }
  composite = ocp.CompositeCheckpointHandler(**{item: handlers[item]})
  with contextlib.closing(ocp.Checkpointer(composite)) as reader:
    yield reader


def describe(state) -> dict[str, list]:
  """{name: [shape, type]} of every array of a state."""
  leaves = jax.tree_util.tree_flatten_with_path(state)[0]
  return {name_of(path): [list(leaf.shape), str(leaf.dtype)] for path, leaf in leaves}


def to_tree(state: TrainState) -> dict:
  """The state as nested dictionaries, whose names do not depend on any Python class."""
  return nest(
    {name_of(path): leaf for path, leaf in jax.tree_util.tree_flatten_with_path(state)[0]}
  )


def from_tree(tree: dict, abstract: TrainState) -> TrainState:
  """Undoes `to_tree`."""
  flat = {name_of(path): leaf for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]}
  return jax.tree_util.tree_map_with_path(lambda path, _: flat[name_of(path)], abstract)


def mismatch(folder, differing, wanted, found, saved_config, config) -> str:
  """Says why a checkpoint does not fit the config."""
  show = lambda spec: f"{spec[1]}{tuple(spec[0])}" if spec else "absent"
  arrays = "; ".join(
    f"{name} is {show(found.get(name))}, the config wants {show(wanted.get(name))}"
    for name in differing[:3]
  )
  settings = "; ".join(changes(saved_config, config))
  more = f" (and {len(differing) - 3} more)" if len(differing) > 3 else ""
  return (
    f"Checkpoint {folder} does not fit the config. Settings that differ: {settings or 'none'}. "
    f"Arrays that differ: {arrays}{more}. Use another --workdir, or the settings it was "
    "made with."
  )


def changes(old: dict, new: dict) -> list[str]:
  """The settings that differ, as "config.model.name: 'ViT-B/16' -> 'ViT-L/16'".

  A setting that an earlier release did not have counts as what that release did.
  """
  return _changes(old, new, to_dict(EARLIER), "config")


def _changes(old, new, default, prefix):
  result = []
  for key in sorted(old.keys() | new.keys()):
    usual = NAMED[prefix] if prefix in NAMED else default.get(key)
    before, after = old.get(key, usual), new.get(key)
    if isinstance(before, dict) and isinstance(after, dict):
      result += _changes(before, after, usual or {}, f"{prefix}.{key}")
    elif json.loads(json.dumps(before)) != json.loads(json.dumps(after)):
      result.append(f"{prefix}.{key}: {before!r} -> {after!r}")
  return result
