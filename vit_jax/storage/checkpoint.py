"""Finds, verifies and reads the checkpoints of a workdir.

WORKDIR/checkpoints/STEP/ holds the state (orbax's own files), meta (JSON: config, class names,
shape and type of every array) and manifest.json, the SHA-256 sum of every other file. One rename
makes all of them appear together.
"""

import contextlib
import logging
import os
import pathlib
from collections.abc import Callable, Iterable
from typing import TypeVar

import jax
import numpy as np
import orbax.checkpoint as ocp

from vit_jax.config import ConfigError, RunError
from vit_jax.config.changes import changes
from vit_jax.config.reading import read_json
from vit_jax.process import agreement
from vit_jax.process.text import first_difference, nfc
from vit_jax.storage import files, manifest
from vit_jax.storage.tree import flatten, name_of, nest
from vit_jax.storage.workdir import CHECKPOINTS

FOLDER = CHECKPOINTS
META = "meta/metadata"  # the file that `read_meta` reads
MAX_BYTES = 2**26  # of that file: mostly the names of classes and parameters
Read = TypeVar("Read")


class CheckpointError(RunError):
  """No checkpoint can be used; the message says which and why."""


class RemovedError(CheckpointError):
  """A checkpoint was removed while it was read."""


def available(workdir: pathlib.Path) -> list[int]:
  """The steps of a workdir's complete checkpoints, ascending; damaged checkpoints are included."""
  folder = workdir / FOLDER
  return [step for step in files.numbers_in(folder) if (folder / str(step)).is_dir()]


def named_by(path: pathlib.Path) -> tuple[pathlib.Path, list[int]]:
  """The workdir and the steps of the checkpoints that a path stands for.

  A workdir stands for all of its checkpoints, and WORKDIR/checkpoints/STEP for that one. Any other
  path stands for none.
  """
  path = path.absolute()
  if path.parent.name == FOLDER and path.name in map(str, available(path.parent.parent)):
    return path.parent.parent, [int(path.name)]
  return path, available(path)


def folder_of(path: pathlib.Path, step: int) -> pathlib.Path:
  """The absolute folder of checkpoint `step`; `path` as in `named_by`."""
  return named_by(path)[0] / FOLDER / str(step)


def described(path: pathlib.Path, step: int = 0) -> tuple[int, dict]:
  """The step and the description of the newest checkpoint, or of `step`, of which it can be read.

  Reads it without Orbax, which would touch a device before the processes are connected.

  Args:
    path: a workdir, or one of its checkpoints, WORKDIR/checkpoints/STEP.
    step: which checkpoint; 0: the newest.

  Returns:
    As `read_meta`; (0, {}) if there is none.
  """
  workdir, steps = named_by(path)
  for one in reversed([one for one in steps if step in (0, one)]):
    folder = workdir / FOLDER / str(one)
    try:
      meta = read_json(folder / META, most=MAX_BYTES)
    except (OSError, ValueError):  # damaged; the restore will report it
      continue
    if isinstance(meta.get("config"), dict) and manifest.is_as_written(folder, META):
      return one, meta
  return 0, {}


def damage_of(folder: pathlib.Path) -> str:
  """Describes the damage of a checkpoint; empty if there is none.

  Raises:
    RemovedError: a run removed the checkpoint meanwhile.
  """
  damage = agreement.of_first(lambda: manifest.damage_of(folder) or _copied(folder))
  if damage == manifest.GONE:
    raise RemovedError(_removed(folder))
  return damage


def _copied(folder: pathlib.Path) -> str:
  """Whether the checkpoint is another step's, as `manifest.damage_of`."""
  try:
    step = read_json(folder / META, most=MAX_BYTES)["step"]
  except (OSError, ValueError, LookupError):
    return manifest.damage_of(folder) or "its description does not name its step"
  return "" if str(step) == folder.name else f"it is a copy of step {step}"


def read(
  workdir: pathlib.Path, step: int, reading: Callable[[pathlib.Path], Read]
) -> tuple[pathlib.Path, Read]:
  """Reads checkpoint `step`, or the newest undamaged checkpoint if `step` is 0.

  A run that goes on removes old checkpoints. If it removes the newest one while it is read, this
  reads the one that is the newest then.

  Returns:
    The folder of the checkpoint, the same on every process, and what `reading` returns for it.

  Raises:
    CheckpointError: there is no such checkpoint, or it is damaged.
  """
  while True:
    folder, found, gone = find(workdir, step), None, ""
    try:
      with _while_there(folder):
        found = reading(folder)
    except RemovedError:
      gone = manifest.GONE
    if not any(agreement.texts(gone)):  # it was removed for no process
      return folder, found


def find(workdir: pathlib.Path, step: int = 0) -> pathlib.Path:
  """The folder of checkpoint `step`, or of the newest undamaged checkpoint if `step` is 0.

  Raises:
    CheckpointError: there is no such checkpoint, or it is damaged.
  """
  damaged = {}
  while (found := agreement.of_first(lambda: _candidate(workdir, step, damaged))).isdecimal():
    folder = workdir.absolute() / FOLDER / found  # orbax reads no relative path
    with contextlib.suppress(RemovedError):
      damage = damage_of(folder)
      if not damage:
        return folder
      damaged[int(found)] = f"{folder} is damaged: {damage}."
      logging.warning("CHECKPOINT %s IS DAMAGED AND IS NOT USED: %s.", folder, damage)
  raise CheckpointError(found)


def _candidate(workdir: pathlib.Path, step: int, damaged: dict[int, str]) -> str:
  """The step of the checkpoint to try next, or a sentence that says why there is none."""
  steps = available(workdir)
  left = [one for one in ([step] if step else steps) if one in steps and one not in damaged]
  if left:
    return str(left[-1])
  if damaged:
    return damaged[min(damaged)]
  known = f"there are steps {steps}" if steps else "there is no checkpoint at all"
  return f"{workdir} has no checkpoint{f' of step {step}' if step else ''}: {known}."


@contextlib.contextmanager
def _while_there(folder: pathlib.Path):
  """Turns any error that comes of removing `folder` while it is read into a `RemovedError`."""
  try:
    yield
  except Exception as error:
    if os.path.lexists(folder):
      raise
    raise RemovedError(_removed(folder)) from error


def _removed(folder):
  return f"Checkpoint {folder} was removed while it was read; name another one, or start again."


def load(folder: pathlib.Path, abstract, config: dict):
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
  """Checks that a checkpoint has exactly the classes `class_names`, in the same order.

  Raises:
    ConfigError: they differ; the message names the first class that differs.
  """
  found, wanted = nfc(read_meta(folder)["class_names"]), nfc(class_names)
  if found != wanted:
    difference = first_difference(found, wanted, "the training data")
    raise ConfigError(
      f"Checkpoint {folder} was trained on other classes, or on these in another order: "
      f"{difference}. Use the data that it was trained on, or begin a run with another "
      f"--workdir and --config.init_from={folder.parents[1]}, which orders the head by class name."
    )


def check_fits(folder: pathlib.Path, wanted, config: dict):
  """Compares a checkpoint's arrays with the shapes and types of `wanted`.

  Args:
    folder: the checkpoint.
    wanted: a state.
    config: the run's settings.

  Raises:
    ConfigError: they differ; the message names the first differing arrays and the settings that
      differ between the two configs.
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

  Parameters that have no average, because they were not trained, are returned as they are.
  """
  arrays = read_meta(folder)["arrays"]
  names = [name.removeprefix("params/") for name in arrays if name.startswith("params/")]
  averaged = lambda name: ema and f"ema/{name}" in arrays
  stored = {name: f"ema/{name}" if averaged(name) else f"params/{name}" for name in names}
  found = read_arrays(folder, stored.values())
  return nest({name: found[place] for name, place in stored.items()})


def read_arrays(folder: pathlib.Path, names: Iterable[str]) -> dict[str, np.ndarray]:
  """Some of a checkpoint's arrays, by name, such as "params/head/kernel"."""
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
  own = jax.process_index()  # none waits for another one, which may have failed
  alone = ocp.options.MultiprocessingOptions(primary_host=own, active_processes={own})
  reader = ocp.Checkpointer(composite, multiprocessing_options=alone)
  with contextlib.closing(reader):
    yield reader


def describe(state) -> dict[str, list]:
  """{name: [shape, type]} of every array of a state."""
  leaves = jax.tree_util.tree_flatten_with_path(state)[0]
  return {name_of(path): [list(leaf.shape), str(leaf.dtype)] for path, leaf in leaves}


def to_tree(state) -> dict:
  """The state as nested dictionaries, whose names do not depend on any Python class."""
  return nest(
    {name_of(path): leaf for path, leaf in jax.tree_util.tree_flatten_with_path(state)[0]}
  )


def from_tree(tree: dict, abstract):
  """Undoes `to_tree`."""
  flat = {name_of(path): leaf for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]}
  return jax.tree_util.tree_map_with_path(lambda path, _: flat[name_of(path)], abstract)


def mismatch(folder, differing, wanted, found, saved_config, config) -> str:
  """One message about why a checkpoint does not fit the config."""
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
