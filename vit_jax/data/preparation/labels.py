"""Checks that a dataset for TFDS can hold the labels of its splits."""

import re
from collections.abc import Iterable

from vit_jax.data.sources import Source, SourceError

_WHOLE = re.compile("-?[0-9]{1,18}")


def ordered(names: Iterable[str]) -> tuple[str, ...]:
  """Different class names in ascending order: 2 before 10 if all are whole numbers, else as text.

  Folders keep the order of text, which other libraries give them too.
  """
  names = sorted(set(names))
  return tuple(sorted(names, key=int) if all(map(_WHOLE.fullmatch, names)) else names)


def checked_classes(splits: dict[str, Source]) -> tuple[str, ...]:
  """The class names of all splits; in the order of `ordered` if the splits differ.

  TFDS stores the names in UTF-8, one a line. When it reads them, it strips each line and drops
  empty ones. A name that it would change could shift all labels.

  Raises:
    SourceError: TFDS cannot hold a class name, a split has two classes of one name, or the splits
      have different kinds of labels.
  """
  _check_kinds(splits)
  for split, source in splits.items():
    _check_names(split, source.class_names)
  lists = [source.class_names for source in splits.values()]
  return lists[0] if len(set(lists)) == 1 else ordered(set().union(*lists))


def _check_kinds(splits: dict[str, Source]) -> None:
  by_kind = {source.multi_label: split for split, source in splits.items()}
  if len(by_kind) > 1:
    raise SourceError(
      f'Images of split "{by_kind[True]}" have any number of labels, and those of split '
      f'"{by_kind[False]}" exactly one; prepare them as two datasets.'
    )


def _check_names(split: str, names: tuple[str, ...]) -> None:
  seen = set()
  for name in names:
    wrong = "another class has this name" if name in seen else _problem(name)
    if wrong:
      raise SourceError(
        f'Split "{split}" has a class {name!r}, which a dataset cannot hold: {wrong}; rename the'
        " folder, or the label in the table."
      )
    seen.add(name)


def _problem(name: str) -> str:
  """What TFDS would change in a class name, in words; "": nothing."""
  if not name.strip():
    return "it is empty"
  if name != name.strip():
    return "it begins or ends with white space"
  if "\n" in name or "\r" in name:
    return "it has a line break"
  try:
    name.encode()
  except UnicodeEncodeError:
    return "it is not valid UTF-8"
  return ""
