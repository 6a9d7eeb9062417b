"""The classes of a head and those of data, compared by their names.

Outputs of a head and labels of data are numbers; only names tell whether they mean the same.
"""

import dataclasses
import pathlib
import re
from collections.abc import Sequence

from vit_jax.config.reading import expanded, read_bytes
from vit_jax.data.sources.tfds import imagenet_classes
from vit_jax.process.text import first_difference

DATA = "data"  # as config.class_names
MAX_BYTES = 2**24  # of a file of names
# What exports of heads without names put in their place.
_NUMBERED = re.compile(r"(?:class |LABEL_)(\d+)")
_WORDNET = re.compile(r"n\d{8}")
_IMAGENET_21K = 21_843


class OtherClasses(ValueError):
  """Names that are not those of the data; the message says where they begin to differ."""


@dataclasses.dataclass(frozen=True)
class HeadOrder:
  """How the outputs of a head become those of the data's classes.

  Attributes:
    outputs: for each class of the data, the output of the head; None: as they are.
    said: what was found, in words.
    known: whether anything but their number tells that the classes are the data's.
  """

  outputs: tuple[int, ...] | None
  said: str
  known: bool = True


def order(theirs: Sequence[str], ours: Sequence[str]) -> HeadOrder:
  """Compares the names that go with weights with those of the data, of which there are as many.

  Args:
    theirs: of the head's outputs; () where nothing names them.
    ours: of the data's classes.

  Raises:
    OtherClasses: they are not the same names.
  """
  theirs, ours = tuple(theirs), tuple(ours)
  if theirs == ours:
    return HeadOrder(None, "those of the data, by name")
  if not named(theirs):
    if standard(ours):
      return HeadOrder(
        None,
        f"not named by the weights; their {len(ours):,} outputs are taken to be ImageNet's classes "
        "in the ascending order of WordNet ids, as in all published weights",
      )
    return HeadOrder(
      None, "not named by the weights: nothing tells that they are the data's", False
    )
  places = {name: i for i, name in enumerate(theirs)}
  if len(places) == len(theirs) and places.keys() == set(ours):
    moved = sum(a != b for a, b in zip(theirs, ours, strict=True))
    return HeadOrder(
      tuple(places[name] for name in ours),
      f"those of the data in another order: {moved} of the head's {len(ours)} outputs were moved "
      "to the places that their names have there",
    )
  raise OtherClasses(first_difference(theirs, ours, "the data"))


def of_head(setting: str, names: Sequence[str], ours: Sequence[str]) -> HeadOrder:
  """As `order`, where a setting may say what weights do not, or say it better.

  Args:
    setting: config.class_names.
    names: that go with the weights; () where there are none.
    ours: of the data's classes, as many as the head has outputs.

  Raises:
    OtherClasses: as `order`.
    ValueError: a file of names that cannot be read, or has another number of them.
  """
  if setting == DATA:
    return HeadOrder(
      None, f"taken to be those of the data, in their order (config.class_names={DATA})"
    )
  if not setting:
    return order(names, ours)
  try:
    found = read(expanded(setting))
  except (ValueError, OSError) as error:
    reason = getattr(error, "strerror", None) or error
    raise ValueError(
      f"config.class_names={setting!r} is neither 'data' nor a file with a name a line: {reason}"
    ) from error
  if len(found) != len(ours):
    raise ValueError(
      f"config.class_names={setting!r} names {len(found)} classes, and the head has {len(ours)}; "
      "give a text file with a name a line"
    )
  return order(found, ours)


def named(names: Sequence[str]) -> bool:
  """Whether there are names, and not only such as "class 3" and "LABEL_3" that count the classes.

  Plain numbers are names: data sets of digits have them.
  """
  matches = [_NUMBERED.fullmatch(name) for name in names]
  return not all(match and int(match[1]) == i for i, match in enumerate(matches))


def standard(names: Sequence[str]) -> bool:
  """Whether they are ImageNet's 1,000 or ImageNet-21k's classes as published weights have them."""
  if len(names) == _IMAGENET_21K:
    return all(map(_WORDNET.fullmatch, names)) and list(names) == sorted(names)
  return len(names) == 1000 and tuple(names) == imagenet_classes()


def read(path: pathlib.Path) -> tuple[str, ...]:
  """The names in a text file, one a line.

  Raises:
    ValueError: it is no text in UTF-8.
    OSError: it cannot be read, is too large or no regular file.
  """
  try:
    text = read_bytes(path, most=MAX_BYTES).decode("utf-8-sig")
  except UnicodeDecodeError as error:
    raise ValueError(f"it is no text in UTF-8 ({error})") from error
  lines = text.replace("\r\n", "\n").split("\n")
  return tuple(lines if lines[-1] else lines[:-1])
