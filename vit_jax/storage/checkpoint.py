"""Finds, verifies and reads the checkpoints of a workdir, and compares them with a run.

Nothing is written here.
"""

import contextlib
import errno
import logging
import os
import re
from collections.abc import Callable, Iterable
from typing import TypeVar

import jax
import numpy as np

from vit_jax.process import agreement, machine
from vit_jax.process.errors import ConfigError, RunError
from vit_jax.process.text import first_difference, nfc, one_line, quoted
from vit_jax.storage import arrays, files, manifest
from vit_jax.storage.base import CannotReadError, UnreachableError, reading
from vit_jax.storage.paths import Path
from vit_jax.storage.tree import name_of, named, nest
from vit_jax.storage.workdir import CHECKPOINTS, MANIFEST

STATE = "state"
DAMAGED = ".damaged"  # ends the name of a damaged checkpoint, which begins with its step
META = "meta/metadata"  # the file that `read_meta` reads
MAX_BYTES = 2**26  # of that file, which holds mostly names of classes and parameters
Read = TypeVar("Read")


class CheckpointError(RunError):
  """A checkpoint, or all of them, cannot be used; the message says which and why."""


class RemovedError(CheckpointError):
  """A checkpoint was removed while it was read."""


def available(workdir: Path) -> list[int]:
  """The steps of a workdir's complete checkpoints, ascending, including damaged ones.

  A complete checkpoint has a manifest.
  """
  folder = workdir / CHECKPOINTS
  return [step for step in files.numbers_in(folder) if files.is_file(folder / str(step) / MANIFEST)]


def named_by(path: Path) -> tuple[Path, list[int]]:
  """The workdir and the steps of the checkpoints that a path stands for.

  A workdir stands for all of its checkpoints, and WORKDIR/checkpoints/STEP for that one. Any other
  path stands for none.
  """
  path = path.absolute()
  if path.parent.name == CHECKPOINTS and path.name in map(str, available(path.parent.parent)):
    return path.parent.parent, [int(path.name)]
  return path, available(path)


def described(path: Path, step: int = 0) -> tuple[int, dict]:
  """The step and the description of a checkpoint.

  Args:
    path: a workdir, or one of its checkpoints, WORKDIR/checkpoints/STEP.
    step: the step of the checkpoint; 0: the newest one whose description can be read.

  Returns:
    The step, and the description as from `read_meta`; (0, {}) if there is none.
  """
  workdir, steps = named_by(path)
  for candidate in reversed([known for known in steps if step in (0, known)]):
    folder = workdir / CHECKPOINTS / str(candidate)
    try:
      meta = read_meta(folder)
    except UnreachableError:
      raise
    except (OSError, ValueError):  # damaged; the restore will report it
      continue
    if isinstance(meta.get("config"), dict) and manifest.is_as_written(folder, META):
      return candidate, meta
  return 0, {}


def damage_of(folder: Path) -> str:
  """Describes the damage of a checkpoint; "" if there is none.

  Each process hashes a share of its files; if they see different files, each hashes all of them.

  Raises:
    RemovedError: a run removed the checkpoint meanwhile.
    UnreachableError: this process, or another one, cannot read it now.
  """
  damage, seen = _looked_at(folder, jax.process_index(), jax.process_count())
  if len(set(seen)) > 1:
    damage, _ = _looked_at(folder, 0, 1)
  found = [text for text in damage if text]
  if not found:
    found = [agreement.broadcast_str(lambda: _copied(folder))]
  if manifest.GONE in found:
    raise RemovedError(_removed(folder))
  return "; ".join(dict.fromkeys(found))


def _looked_at(folder: Path, process: int, processes: int) -> tuple[list[str], list[str]]:
  """The results of `manifest.part_of_damage` in all processes.

  Raises:
    UnreachableError: in all processes, if one cannot read its share.
  """
  failure = None
  damage = ""
  seen = ""
  try:
    damage, seen = manifest.part_of_damage(folder, process, processes)
  except UnreachableError as error:
    failure = error
  words = (_cut(one_line(text)) for text in (str(failure or ""), damage))
  told = agreement.allgather_str("\n".join((seen, *words)))
  all_seen, failures, damages = zip(*(text.split("\n") for text in told), strict=True)
  for number, why in enumerate(failures):
    if why:
      raise failure or CannotReadError(errno.EIO, f"process {number}: {why}", str(folder))
  return list(damages), list(all_seen)


def _cut(text: str) -> str:
  """Cuts a text so that `agreement.allgather_str` has room for two of them and a hash."""
  return text.encode()[:900].decode(errors="ignore")


def _copied(folder: Path) -> str:
  """Describes the damage, as `manifest.damage_of`, if the checkpoint is a copy of another step."""
  try:
    step = read_meta(folder)["step"]
  except UnreachableError:
    raise
  except (OSError, ValueError, LookupError):
    return manifest.damage_of(folder) or "its description does not name its step"
  if str(step) == folder.name:
    return ""
  return f"it is a copy of step {step}"


def read_readable(workdir: Path, step: int, reading: Callable[[Path], Read]) -> tuple[Path, Read]:
  """Reads checkpoint `step`, or the newest undamaged checkpoint if `step` is 0.

  A run in progress removes old checkpoints. If it removes the newest one while it is read, this
  function reads the new newest one.

  Returns:
    The folder of the checkpoint, the same on every process, and what `reading` returns for it.

  Raises:
    CheckpointError: there is no such checkpoint, or it is damaged.
  """
  while True:
    folder = find(workdir, step)
    content = None
    gone = ""
    try:
      with _while_there(folder):
        content = reading(folder)
    except RemovedError:
      gone = manifest.GONE
    if not any(agreement.allgather_str(gone)):  # every process has read it
      return folder, content


def find(workdir: Path, step: int = 0) -> Path:
  """The folder of checkpoint `step`, or of the newest undamaged checkpoint if `step` is 0.

  Raises:
    CheckpointError: there is no such checkpoint, or it is damaged.
  """
  damaged = {}
  while True:
    name = agreement.broadcast_str(lambda: _candidate(workdir, step, damaged))
    if not name.isdecimal():
      raise CheckpointError(name)
    folder = workdir.absolute() / CHECKPOINTS / name
    with contextlib.suppress(RemovedError):
      damage = damage_of(folder)
      if not damage:
        return folder
      damaged[int(name)] = f"{folder} is damaged: {damage}."
      logging.warning("CHECKPOINT %s IS DAMAGED AND IS NOT USED: %s.", folder, damage)


def _candidate(workdir: Path, step: int, damaged: dict[int, str]) -> str:
  """The step of the checkpoint to try next, or a sentence that says why there is none."""
  steps = available(workdir)
  left = [known for known in steps if step in (0, known) and known not in damaged]
  if left:
    return str(left[-1])
  if damaged:
    return damaged[min(damaged)]
  wanted = f" of step {step}" if step else ""
  known = f"there are steps {steps}" if steps else "there is no checkpoint at all"
  return f"{workdir} has no checkpoint{wanted}: {known}."


@contextlib.contextmanager
def _while_there(folder: Path):
  """Turns an error into a `RemovedError` if `folder` was removed meanwhile."""
  try:
    yield
  except Exception as error:
    if files.exists(folder):
      raise
    raise RemovedError(_removed(folder)) from error


def _removed(folder):
  return f"Checkpoint {folder} was removed while it was read; name another one, or start again."


def load(folder: Path, abstract, changes: Callable[[dict], list[str]] = lambda saved: []):
  """Reads a whole state with the shardings of `abstract`.

  Raises:
    ConfigError: as `check_compatible`, which explains `changes`.
  """
  check_compatible(folder, read_meta(folder), abstract, changes)
  with _reading(folder):
    found = arrays.read_arrays(files.kvstore(folder / STATE), named(abstract))
  return jax.tree_util.tree_map_with_path(lambda path, _: found[name_of(path)], abstract)


def load_params(folder: Path, *, ema: bool) -> dict:
  """Only the parameters, or their moving average, as NumPy arrays.

  Parameters without an average, because they were not trained, are returned as they are.
  """
  known = read_meta(folder)["arrays"]
  stored = {}
  for array in known:
    if not array.startswith("params/"):
      continue
    name = array.removeprefix("params/")
    stored[name] = array
    if ema and f"ema/{name}" in known:
      stored[name] = f"ema/{name}"
  values = read_arrays(folder, stored.values())
  return nest({name: values[place] for name, place in stored.items()})


def read_arrays(folder: Path, names: Iterable[str]) -> dict[str, np.ndarray]:
  """Some of a checkpoint's arrays, by name, such as "params/head/kernel"."""
  known = read_meta(folder)["arrays"]
  wanted = {}
  for name in names:
    shape, dtype = known[name]
    wanted[name] = jax.ShapeDtypeStruct(tuple(shape), np.dtype(dtype))
  needed = sum(x.size * x.dtype.itemsize for x in wanted.values())
  most = machine.most_memory()
  if needed > most:
    raise CheckpointError(
      f"{folder} names arrays of {needed:,} bytes, and this machine has {most:,} of memory."
    )
  with _reading(folder):
    return arrays.read_here(files.kvstore(folder / STATE), wanted)


# The first words of TensorStore's errors that say nothing about the content.
_NOT_NOW = (
  *("UNAVAILABLE", "DEADLINE_EXCEEDED", "PERMISSION_DENIED", "UNAUTHENTICATED", "ABORTED"),
  *("RESOURCE_EXHAUSTED", "INTERNAL", "UNKNOWN", "CANCELLED"),
)


@contextlib.contextmanager
def _reading(folder):
  """As `base.reading`, also for TensorStore's errors, which quote the system's errors.

  Raises:
    CheckpointError: the files are as they were written, but hold other arrays.
  """
  with reading(folder):
    try:
      yield
    except ValueError as error:
      if code := os_error_in(error):
        raise OSError(code, os.strerror(code), str(folder)) from error
      message = re.sub(r" \[\w+='.*", "", str(error), flags=re.DOTALL)  # without the details
      words = one_line(" ".join(message.split()))
      if words.startswith(_NOT_NOW):
        raise CannotReadError(errno.EIO, words, str(folder)) from error
      raise CheckpointError(
        f"{folder} is as it was written, but its arrays cannot be read: {words}. Read it with the "
        "version that wrote it, or move it away to continue from the one before."
      ) from error


def os_error_in(error: Exception) -> int:
  """The system's error number in the text of a TensorStore error; 0 if there is none."""
  code = re.search(r"os_error_code='(\d+)'", str(error))
  return int(code[1]) if code else 0


def read_meta(folder: Path) -> dict:
  """The checkpoint's config, class names and array descriptions.

  Touches no device, so it can be called before the processes are connected.
  """
  return files.read_json(folder / META, most=MAX_BYTES)


def check_classes(folder: Path, meta: dict, class_names: Iterable[str]):
  """Checks that a checkpoint has exactly the classes `class_names`, in the same order.

  Raises:
    ConfigError: they differ; the message names the first class that differs.
  """
  saved = nfc(meta["class_names"])
  wanted = nfc(class_names)
  if saved == wanted:
    return
  difference = first_difference(saved, wanted, "the training data")
  same_names = sorted(saved) == sorted(wanted)
  flags = f"--config.init_from={quoted(folder.parents[1])}"
  if same_names == meta["config"].get("new_head", False):  # else the recipe does it already
    flags += f" --config.new_head={not same_names}"
  head = "orders the head by class name" if same_names else "begins with a new head"
  raise ConfigError(
    f"Checkpoint {folder} was trained on other classes, or on these in another order: "
    f"{difference}. Use the data that it was trained on, or begin a run with another "
    f"--workdir and {flags}, which {head}."
  )


def check_compatible(folder: Path, meta: dict, state, changes: Callable[[dict], list[str]]):
  """Compares a checkpoint's arrays with the shapes and types of a state.

  Args:
    folder: the checkpoint.
    meta: the checkpoint's description.
    state: the state of the run.
    changes: returns the differences between the checkpoint's settings, which it is called with,
      and the run's.

  Raises:
    ConfigError: they differ; the message names the first arrays and the settings that differ.
  """
  saved = meta["arrays"]
  wanted = describe(state)
  differing = sorted(
    name for name in wanted.keys() | saved.keys() if wanted.get(name) != saved.get(name)
  )
  if not differing:
    return
  arrays = "; ".join(
    f"{name} is {_in_words(saved.get(name))}, the config wants {_in_words(wanted.get(name))}"
    for name in differing[:3]
  )
  more = ""
  if len(differing) > 3:
    more = f" (and {len(differing) - 3} more)"
  settings = "; ".join(changes(meta["config"]))
  raise ConfigError(
    f"Checkpoint {folder} does not fit the config. Settings that differ: {settings or 'none'}. "
    f"Arrays that differ: {arrays}{more}. Use another --workdir, or the settings it was "
    "made with."
  )


def _in_words(spec: list | None) -> str:
  """The [shape, type] of an array, as text."""
  if not spec:
    return "absent"
  return f"{spec[1]}{tuple(spec[0])}"


def describe(state) -> dict[str, list]:
  """{name: [shape, type]} of every array of a state."""
  return {name: [list(leaf.shape), str(leaf.dtype)] for name, leaf in named(state).items()}
