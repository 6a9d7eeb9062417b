"""Matches the outputs of a head to the classes of the data, by name.

Outputs and labels are numbers; only names show whether they mean the same.

The classes of ImageNet are recognised by their number and their WordNet ids.
"""

import dataclasses
import functools
import importlib.util
import pathlib
import re
from collections.abc import Sequence

from vit_jax.config import ConfigError, suggestions
from vit_jax.data.datasets import NamedDataset
from vit_jax.data.sources import Renumbered
from vit_jax.process.text import first_difference, listed, nfc, unseen
from vit_jax.storage.files import read_bytes
from vit_jax.storage.paths import local_path


@functools.cache
def imagenet_classes() -> tuple[str, ...]:
  """ImageNet's 1,000 classes as WordNet ids such as "n01440764", sorted, as TFDS names them.

  Reads them from the package of TFDS; no dataset needs to be prepared.
  """
  package = pathlib.Path(importlib.util.find_spec("tensorflow_datasets").origin).parent
  return tuple((package / "datasets/imagenet2012/labels.txt").read_text().split())


DATA = "data"  # a value of config.class_names
ASSUMED = f"assumed to be the data's, in the same order (config.class_names={DATA})"
MAX_BYTES = 2**24  # largest file of names
# The placeholders of exports whose head has no names.
_NUMBERED = re.compile(r"(?:class |LABEL_)(\d+)")
_WORDNET = re.compile(r"n\d{8}")
_IMAGENET = 1_000  # classes
_IMAGENET_21K = 21_843


class OtherClasses(ValueError):
  """The head and the data have different class names; the message says how they differ."""


@dataclasses.dataclass(frozen=True)
class HeadOrder:
  """How the outputs of a head map to the data's classes.

  Attributes:
    outputs: for each class of the data, the output of the head; None: the same order.
    description: the result of the comparison, as text.
    known: False if only the number of classes shows that they are the data's.
  """

  outputs: tuple[int, ...] | None
  description: str
  known: bool = True


@dataclasses.dataclass(frozen=True)
class HeadNames:
  """The names of a head's outputs.

  Attributes:
    names: the names, in the order of the outputs; () if they are unknown.
    origin: where they come from, as text.
  """

  names: tuple[str, ...]
  origin: str = ""


def of_outputs(
  setting: str, names: Sequence[str], outputs: int, sets: Sequence[Sequence[str]]
) -> HeadNames:
  """The names of a head's outputs, by which evaluation sets are scored.

  Args:
    setting: config.class_names.
    names: class names of the weights; () if there are none.
    outputs: the number of outputs of the head.
    sets: the class names of each set.

  Raises:
    ValueError: the file of names cannot be read, or has another number of names.
  """
  whole = next((tuple(ours) for ours in sets if len(ours) == outputs), ())
  if setting == DATA:
    return HeadNames(whole, ASSUMED)
  if setting:
    names = of_file(setting, outputs)
  if names and (tuple(names) == whole or named(names)):
    return HeadNames(tuple(names), "those of the data, by name")
  if standard(whole):
    return HeadNames(whole, standard_order(outputs))
  if outputs == _IMAGENET and not whole and sets and all(map(of_imagenet, sets)):
    return HeadNames(imagenet_classes(), standard_order(outputs))
  return HeadNames(())


def places(ours: Sequence[str], head: Sequence[str], whose: str = "the head") -> tuple[int, ...]:
  """For each class of data, the output of the head that has its name.

  Args:
    ours: names of the data's classes.
    head: names of the head's outputs.
    whose: the owner of the names in `head`, for messages.

  Raises:
    OtherClasses: the head lacks a class, or names are not unique.
  """
  if tuple(ours) == tuple(head):
    return tuple(range(len(head)))
  outputs = {name: i for i, name in enumerate(head)}
  if surplus := [name for name in ours if name not in outputs]:
    message = f"{whose} has no class {listed(surplus)}"
    near = next(iter(suggestions.alike(surplus[0], head, 0.6)), "")
    if near:
      message += f" (it has {near!r}{unseen(surplus[0], near)})"
    raise OtherClasses(message)
  if len(outputs) < len(head) or len({*ours}) < len(ours):
    raise OtherClasses("two classes have the same name, so that names do not tell them apart")
  return tuple(outputs[name] for name in ours)


def matched(dataset: NamedDataset, head: Sequence[str], whose: str) -> NamedDataset:
  """A dataset renumbered to the classes of a head, matched by name; it may lack some of them.

  Arguments as for `places`.

  Raises:
    ConfigError: the dataset has classes that the head does not have.
  """
  names = dataset.source.class_names
  try:
    numbers = dict(enumerate(places(names, head, whose)))
  except OtherClasses as error:
    raise ConfigError(f"{dataset} has other classes: {error}.") from error
  if tuple(names) == tuple(head):
    return dataset
  return dataset._replace(source=Renumbered(dataset.source, numbers, head))


def of_head(setting: str, names: Sequence[str], ours: Sequence[str]) -> HeadOrder:
  """Matches the outputs of a head to the data's classes.

  Args:
    setting: config.class_names.
    names: class names of the weights; () if there are none.
    ours: names of the data's classes, as many as the head has outputs.

  Raises:
    OtherClasses: the names differ.
    ValueError: the file of names cannot be read, or has another number of names.
  """
  ours = tuple(ours)
  head = of_outputs(setting, names, len(ours), [ours])
  if not head.names:
    unknown = "not named by the weights, and may be other classes than the data's"
    return HeadOrder(None, unknown, known=False)
  if head.names == ours:
    return HeadOrder(None, head.origin)
  try:
    outputs = places(ours, head.names)
  except OtherClasses as error:
    raise OtherClasses(first_difference(head.names, ours, "the data")) from error
  moved = sum(a != b for a, b in zip(head.names, ours, strict=True))
  return HeadOrder(
    outputs,
    f"those of the data in another order: {moved} of the head's {len(ours)} outputs were moved "
    "to the data's order",
  )


def of_file(setting: str, outputs: int) -> tuple[str, ...]:
  """The names in the file config.class_names, one for each output of the head.

  Raises:
    ValueError: the file cannot be read, or has another number of names.
  """
  try:
    names = read_names(local_path(setting))
  except (ValueError, OSError) as error:
    reason = getattr(error, "strerror", None) or error
    raise ValueError(
      f"config.class_names={setting!r} is neither 'data' nor a file with a name per line: {reason}"
    ) from error
  if len(names) != outputs:
    raise ValueError(
      f"config.class_names={setting!r} names {len(names)} classes, but the head has {outputs}; "
      "give a text file with a name per line"
    )
  return names


def named(names: Sequence[str]) -> bool:
  """Whether these are real names, not placeholders such as "class 3" and "LABEL_3".

  Plain numbers count as names, because datasets of digits use them.
  """
  matches = [_NUMBERED.fullmatch(name) for name in names]
  return not all(match and int(match[1]) == i for i, match in enumerate(matches))


def standard(names: Sequence[str]) -> bool:
  """Whether these are ImageNet's or ImageNet-21k's classes in the order of published weights."""
  if len(names) == _IMAGENET_21K:
    return all(map(_WORDNET.fullmatch, names)) and list(names) == sorted(names)
  return len(names) == _IMAGENET and tuple(names) == imagenet_classes()


def of_imagenet(names: Sequence[str]) -> bool:
  """Whether these are some of ImageNet's classes, in any order."""
  return bool(names) and {*names} <= {*imagenet_classes()}


def standard_order(outputs: int) -> str:
  """The sentence that outputs without names are taken for ImageNet's classes."""
  return (
    f"not named by the weights; their {outputs:,} outputs are assumed to be ImageNet's classes in "
    "the ascending order of WordNet ids, as in all published weights"
  )


def read_names(path: pathlib.Path) -> tuple[str, ...]:
  """Reads names from a text file, one per line.

  Raises:
    ValueError: the file is not text in UTF-8.
    OSError: the file cannot be read, is too large, or is not a regular file.
  """
  try:
    text = read_bytes(path, most=MAX_BYTES).decode("utf-8-sig")
  except UnicodeDecodeError as error:
    raise ValueError(f"it is not text in UTF-8 ({error})") from error
  lines = text.replace("\r\n", "\n").split("\n")
  if not lines[-1]:
    lines = lines[:-1]
  return nfc(lines)
