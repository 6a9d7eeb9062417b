"""A part of labelled images, such as [:90%] or [1000:2000], taken from every class."""

import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from vit_jax.data.sources.base import SourceError

_PART = re.compile(r"\[(?P<first>-?[0-9]{1,9}%?)?:(?P<end>-?[0-9]{1,9}%?)?\]")
BOTH = "trainval"  # training and validation images together
TRAINING = ("train", "training", BOTH)  # words for a split, the preferred one first
VALIDATION = ("validation", "valid", "val", "dev", "eval")
TEST = ("test", "testing")
_SPLITS = frozenset((*TRAINING, *VALIDATION, *TEST))
_OF_ONE = "one image cannot be in two parts: add images of this class, or leave it out."
_ALONE = "Each class has one image, so there is none for the part {split!r}; add images."
_KEY = b"vit_jax: parts of folders"  # the seed of the random order


class Part(NamedTuple):
  """The begin and end of a part; negative numbers count from the end, as in TFDS.

  Percentages cut each class by itself, at the nearest whole image, but with an image on both sides
  of the cut if the class has at least two. So new images in one class do not change the part of
  another. The rest, [x:], may lack a class of one image.

  Whole numbers count the images of all classes, in an order in which the first images hold about
  the same fraction of each class: the j-th of n images of a class, from 0, has the place
  (j + 1/2) / n (Sainte-Lague's method). [:1000] are the first 1,000.

  In both cases [:x] is contained in [:y] if x < y, and [x:] is the complement of [:x].

  Attributes:
    split: the text of the part.
    first, end: where the part begins and ends; None: at the first, or after the last, image.
    percent: whether `first` and `end` are percentages.
  """

  split: str
  first: int | None
  end: int | None
  percent: bool

  def ends(self, counts: Sequence[int]) -> np.ndarray:
    """The begin and end of the part in each class; `counts` are the images of each class.

    Returns:
      (2, classes) int64.

    Raises:
      SourceError: the part begins or ends outside of the images, or is empty.
    """
    if self.percent:
      cuts = self._cuts(100)
      return np.array([[_before(cut, n) for n in counts] for cut in cuts])
    cuts = self._cuts(sum(counts))
    places = np.concatenate([(np.arange(n) + 0.5) / n for n in counts])
    labels = np.repeat(np.arange(len(counts)), counts)[np.argsort(places, kind="stable")]
    return np.stack([np.bincount(labels[:cut], minlength=len(counts)) for cut in cuts])

  def _cuts(self, whole: int) -> tuple[int, int]:
    """The begin and end, from 0 to `whole`."""
    first = 0 if self.first is None else self.first
    end = whole if self.end is None else self.end
    if first < 0:
      first += whole
    if end < 0:
      end += whole
    if not 0 <= first < end <= whole:
      raise _no_part(self.split, "" if self.percent else f" ({whole:,} in all)")
    return first, end

  def may_lack(self, images: int) -> bool:
    """Whether a class with this number of images may have none in the part."""
    return images == 1 and self.percent and self.end in (None, 100)


def _before(percent: int, images: int) -> int:
  """The number of a class's images before a cut."""
  nearest = round(images * percent / 100)
  if images > 1 and 0 < percent < 100:
    return min(max(nearest, 1), images - 1)
  return nearest


def parse(split: str) -> Part | None:
  """The part that a split names; None: all images.

  Raises:
    SourceError: the text is not a part.
  """
  if not split:
    return None
  match = _PART.fullmatch(split)
  if not match:
    raise _no_part(split)
  cuts = [cut for cut in match.groups() if cut]
  if not cuts:
    return None
  if len({cut[-1] == "%" for cut in cuts}) > 1:
    raise _no_part(split)
  numbers = (cut and int(cut.rstrip("%")) for cut in match.group("first", "end"))
  return Part(split, *numbers, percent=cuts[0][-1] == "%")


def choose(part: Part | None, names: dict[str, list[str]]) -> list[list[str]]:
  """The sorted names in a part of each class.

  Puts each class into a random order that depends only on the names of its files. So the order is
  the same on every host and wherever the folder lies, and new files do not change the order of the
  others.

  Args:
    part: the part; None: all images.
    names: {folder of a class: names in the folder}.

  Raises:
    SourceError: as `Part.ends`; or the part is empty, or lacks a class that it may not lack.
  """
  if part is None:
    return [sorted(files) for files in names.values()]
  ordered = [sorted(files, key=_random) for files in names.values()]
  cuts = part.ends([len(files) for files in ordered])
  chosen = [sorted(files[first:end]) for files, first, end in zip(ordered, *cuts, strict=True)]
  if not any(chosen) and all(part.may_lack(len(files)) for files in ordered):
    raise SourceError(_ALONE.format(split=part.split))
  for (folder, files), in_part in zip(names.items(), chosen, strict=True):
    if in_part or part.may_lack(len(files)):
      continue
    remedy = _OF_ONE
    if len(files) > 1:
      remedy = "add images, or take a larger part."
    raise SourceError(
      f'Class "{folder}" has {len(files)} images, and none of them is in its part'
      f" {part.split}; {remedy}"
    )
  return chosen


def _random(name: str) -> tuple[bytes, str]:
  """A sort key that gives a random order of names."""
  return hashlib.blake2b(os.fsencode(name), digest_size=16, key=_KEY).digest(), name


def _no_part(split: str, of: str = "") -> SourceError:
  return SourceError(
    f'These images{of} have no split {split!r}; set it to "" for all images, or to a part of each'
    ' class, such as "[:90%]" and "[90%:]".'
  )


def split_words(name: str) -> frozenset[str]:
  """The words of a name that mean a split, as in "val", "Test_Set", "trainset", "train2017"."""
  words = re.split("[^a-z]+", name.lower())
  return frozenset(_SPLITS.intersection(word.removesuffix("set") for word in words))


def is_split(name: str) -> bool:
  """Whether all words of a name mean splits: of "Test", "train set", "trainval", not of "test1"."""
  words = [word.removesuffix("set") for word in re.split(r"[\W_]+", name.lower())]
  return any(words) and _SPLITS.issuperset(filter(None, words))


def for_training(name: str) -> bool:
  """Whether a word of a name means a split for training."""
  return not split_words(name).isdisjoint(TRAINING)


def word_of(name: str) -> str:
  """The first word of a name that means a split, or else the name in lower case."""
  lower = name.lower()
  return min(split_words(name), key=lower.find, default=lower)


def by_word(names: Iterable[str], what: str, together: str) -> dict[str, str]:
  """The name of each split, by `word_of`.

  Of several names with a word, the one that is this word alone, in any case, has it; if none is,
  only names for training are refused. The others stand by themselves in lower case.

  Args:
    names: of splits.
    what: the names, for messages, such as '"photos" has several folders'.
    together: how to unite names, for messages: "move their files into a folder called".

  Raises:
    SourceError: it is not certain which name means a split.
  """
  found = {}
  for name in sorted(names):
    found.setdefault(word_of(name), []).append(name)
  chosen = {}
  for word, alike in found.items():
    by_name = {name.lower(): name for name in alike}
    if len(by_name) < len(alike) or (len(alike) > 1 and word in TRAINING and word not in by_name):
      raise SourceError(
        f"{what} for {word}: {', '.join(alike)}; call one of them alone {word}, which is then "
        f"taken, or, to read several together, {together} {word}."
      )
    chosen |= by_name if len(alike) > 1 else {word: alike[0]}
  return chosen
