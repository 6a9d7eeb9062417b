"""Splits in the names of files and in a column of a table."""

import os
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

import numpy as np

from vit_jax.config import Dataset
from vit_jax.data.sources import part, table
from vit_jax.data.sources.base import SourceError
from vit_jax.process.text import listed, shown

SPLIT = "split"  # the name of a column, in any case
_FEW = 20  # the most values of a column of splits that has another name
_BETWEEN = r"[\W_]+"  # what is between words
_HEXADECIMAL = re.compile("[0-9a-f]+")
_LEAST = 3  # letters of a word that is no count: "split" counts files by aa, ab, ac
_TOGETHER = "move their files into a folder called"
_SUFFIXES = r"\.(tar|parquet)$"


def divided(split: str) -> tuple[str, str]:
  """The name and the part of a split: "train[:90%]" is "train" and "[:90%]"."""
  name, bracket, rest = split.partition("[")
  return name, bracket + rest


def of_split(where: str, names: Sequence[str], split: str) -> tuple[list[str], list[str]]:
  """The files of a split.

  Args:
    where: what the user named, for messages.
    names: paths of the files, relative to `where`; "" is `where` itself.
    split: the name of the split by `_names_of`, or else words in the names of its files; "": all
      files, which must belong to one split.

  Returns:
    The files; and notes on files that are in no split, or have another name for this one.

  Raises:
    SourceError: there is no such split, or several.
  """
  paths = {name: name or os.path.basename(where) for name in names}
  split_of = dict(zip(paths, _names_of(paths.values()), strict=True))
  if split:
    words = [*filter(None, re.split(_BETWEEN, split.lower()))]
    chosen = [name for name in names if split_of[name] == "_".join(words)]
    chosen = chosen or [name for name in names if _has_words(paths[name], words)]
  else:
    alike = len({part.split_words(path) for path in paths.values()}) < 2
    chosen = [*names] if alike else []
  if not chosen and not any(split_of.values()):
    raise SourceError(
      f'The files of "{where}" are not named by splits, so there is no split {split!r}; set it to '
      '"" for all images, or to a part such as "[:90%]".'
    )
  if not chosen:
    there = sorted({name or "unnamed" for name in split_of.values()})
    raise SourceError(
      f'"{where}" has files of these splits: {", ".join(there)}; name one, not {split!r}.'
    )
  several = sorted({split_of[name] for name in chosen})
  if len(several) > 1 and part.split_words(split):
    raise SourceError(
      f'"{where}" has files with several names for the split {split!r}: {", ".join(several)}; name '
      f"one of them, or, to read several together, {_TOGETHER} {part.word_of(split)}."
    )
  others = _unused({*split_of.values()}, split)
  others = {name for name in names if split_of[name] in others} - {*chosen}
  unused = [name for name in names if name in others]
  return chosen, [f"Not used of {where!r}: {listed(unused)}."] if unused else []


def _names_of(paths: Iterable[str]) -> Iterator[str]:
  """The name of each file's split: "train_extra" of data/train-extra-00000-of-00002.tar; "": none.

  It is made of the words in those names of folders, and of the file, that are splits; if none is
  one, in those that have a word for a split. Words that count files do not belong to it.
  """
  named = [_words_of(path) for path in paths]
  counting = {place for names in named for words in names for place in _numbered(words)}
  for names in named:
    letters = ["_".join(_letters(words, counting)) for words in names]
    yield "_".join(filter(part.is_split, letters)) or "_".join(letters)


def _words_of(path: str) -> list[list[str]]:
  """The words of each name of a folder, or of the file, that has a word for a split."""
  names = re.sub(_SUFFIXES, "", path.lower()).split("/")
  return [re.split(_BETWEEN, name) for name in names if part.split_words(name)]


def _numbered(words: Sequence[str]) -> Iterator[tuple[int, int]]:
  """The places of numbers, decimal or hexadecimal, in a name of so many words."""
  for at, word in enumerate(words):
    if _HEXADECIMAL.fullmatch(word) and not word.isalpha():
      yield len(words), at


def _letters(words: Sequence[str], counting: Container[tuple[int, int]]) -> Iterator[str]:
  """The words of a name that do not count files: "train", "extra" of "train2017-extra-0-of-2".

  Not "of", "a" and "ab"; nor "deadbeef" where another file has a number (`counting`), such as the
  checksum "0a1b2c3d".
  """
  for at, word in enumerate(words):
    if not word.isalpha():
      yield from filter(part.split_words, re.findall("[a-z]+", word))
      continue
    counts = _HEXADECIMAL.fullmatch(word) and (len(words), at) in counting
    if len(word) >= _LEAST and not counts:
      yield word


def _has_words(path: str, words: Sequence[str]) -> bool:
  """Whether a path has each of these words, or the word for this split."""
  there = {*part.split_words(path), *re.split("[^a-z0-9]+", path.lower())}
  return bool(words) and there.issuperset(words)


def _unused(names: Iterable[str], split: str) -> list[str]:
  """Those of some names that are of no split, or that are other names for this one."""
  if not part.split_words(split):
    return []
  word = part.word_of(split)
  return [name for name in names if not part.split_words(name) or part.word_of(name) == word]


def parts_of(argument: str, names: Sequence[str]) -> dict[str, tuple[str, str]]:
  """The splits in the names of files, as in `Source.named_parts`.

  Raises:
    SourceError: several names mean training, as `part.by_word`.
  """
  found = {*_names_of(name or os.path.basename(argument) for name in names)}
  what = f"{argument!r} has files with several names"
  chosen = part.by_word(filter(None, found), what, _TOGETHER)
  return {word: (argument, word) for word in sorted(chosen)}


def in_names(where: str, names: Sequence[str]) -> bool:
  """Whether files are named by splits; arguments as for `of_split`."""
  return any(part.split_words(name or os.path.basename(where)) for name in names)


def few_values(columns: Mapping[str, Iterable[str | None]]) -> dict[str, tuple[str, ...]]:
  """The different values of columns of text, without empty ones.

  They are () for the column of the labels, and for columns with more than `_FEW`, which are not
  read any further.
  """
  key = Dataset().label_key
  labels = table.column(key, key, table.LABELS, [*columns], "")
  return {name: () if name == labels else _few(values) for name, values in columns.items()}


def _few(values: Iterable[str | None]) -> tuple[str, ...]:
  found = set()
  for value in filter(None, values):
    found.add(value)
    if len(found) > _FEW:
      return ()
  return tuple(sorted(found))


def column_of(where: str, columns: Mapping[str, tuple[str, ...]]) -> str:
  """The column of splits; "" if there is none.

  It is called "split", in any case. Otherwise all its values are words for splits, some of them for
  training and some not.

  Args:
    where: the data, for messages.
    columns: the result of `few_values` for all columns of text.

  Raises:
    SourceError: the values of several columns are splits.
  """
  if named := next((name for name in columns if name.lower() == SPLIT), ""):
    return named
  found = [name for name, values in columns.items() if _are_splits(values)]
  if len(found) > 1:
    raise SourceError(
      f'"{where}" has several columns of splits: {listed(found)}; call the one to read "{SPLIT}".'
    )
  return next(iter(found), "")


def _are_splits(values: Sequence[str]) -> bool:
  """Whether all values are words for splits, some for training and some not."""
  training = sum(map(part.for_training, values))
  return 0 < training < len(values) and all(map(part.is_split, values))


def on_unread(
  where: str, names: Iterable[str], columns: Mapping[str, tuple[str, ...]]
) -> list[str]:
  """Notes on columns that are not read, but may name splits, by their names or their values.

  Args:
    where: the data.
    names: the columns that are not read.
    columns: as for `column_of`.
  """
  found = [name for name in names if _may_name_splits(name, columns.get(name, ()))]
  return [f"All rows of {where!r} are taken: its column {name!r} is not read." for name in found]


def _may_name_splits(name: str, values: Sequence[str]) -> bool:
  named = name.lower() == SPLIT or bool(part.split_words(name))
  return named or (len(values) > 1 and any(map(part.for_training, values)))


def parts_in(argument: str, column: str, values: Iterable[str]) -> dict[str, tuple[str, str]]:
  """The splits in a column, as in `Source.named_parts`; `values` are all that occur in it."""
  what = f"{argument!r} has, in its column {column!r}, several values"
  chosen = part.by_word(filter(None, values), what, "call all of them")
  return {word: (argument, value) for word, value in chosen.items()}


def rows_of_split(
  where: str, column: str, values: Sequence[str | None], split: str, notes: list[str]
) -> np.ndarray:
  """The rows of a split, ascending; for "" all rows.

  Args:
    where: the data, for messages.
    column: the name of the column of splits.
    values: the split of each row; some may have none.
    split: one of the values.
    notes: get a note on rows of all splits or of none, and on those that have another name for
      this one, such as train_extra.

  Raises:
    SourceError: there is no such split.
  """
  there = shown(sorted(filter(None, set(values))))
  if not split:
    notes.append(f"All splits of {where!r} are taken: {there} in the column {column!r}.")
    return np.arange(len(values))
  rows = np.flatnonzero([value == split for value in values])
  if not len(rows):
    raise SourceError(f'"{where}" has no split {split!r}: its column {column!r} has {there}.')
  if without := sum(not value for value in values):
    notes.append(f"{without:,} rows of {where!r} have no {column!r}, and are left out.")
  if unused := sorted({*_unused({*filter(None, values)}, split)} - {split}):
    notes.append(f"Not used of {where!r}: the rows with {listed(unused)} in the column {column!r}.")
  return rows
