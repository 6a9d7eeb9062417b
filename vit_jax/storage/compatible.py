"""Checks that a checkpoint fits a run: its arrays and its classes."""

from collections.abc import Callable, Iterable

from vit_jax.process.errors import ConfigError
from vit_jax.process.text import first_difference, nfc
from vit_jax.storage.paths import Path
from vit_jax.storage.tree import named


def check_classes(folder: Path, meta: dict, class_names: Iterable[str]):
  """Checks that a checkpoint has exactly the classes `class_names`, in the same order.

  Raises:
    ConfigError: they differ; the message names the first class that differs.
  """
  saved = nfc(meta["class_names"])
  wanted = nfc(class_names)
  if saved != wanted:
    difference = first_difference(saved, wanted, "the training data")
    raise ConfigError(
      f"Checkpoint {folder} was trained on other classes, or on these in another order: "
      f"{difference}. Use the data that it was trained on, or begin a run with another "
      f"--workdir and --config.init_from={folder.parents[1]}, which orders the head by class name."
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
