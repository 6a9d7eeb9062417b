"""A part of a folder of images, such as [:90%] or [1000:2000], taken from every class."""

import hashlib
import itertools
import os
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from vit_jax.data.sources.base import SourceError

_PART = re.compile(r"\[(?P<first>-?[0-9]{1,9}%?)?:(?P<end>-?[0-9]{1,9}%?)?\]")
_KEY = b"vit_jax: parts of folders"  # The seed: another one is another choice.


class Part(NamedTuple):
  """From where to where a part goes; it may count from the end, as in TFDS.

  Percentages cut each class by itself, at the nearest whole image. So images that are added to one
  class change nothing in the others.

  Whole numbers count the images of all classes. These are in an order in which every beginning
  holds about the same share of each class: the j-th of n images of a class, from 0, has the place
  (j + 1/2) / n (Sainte-Lague's method). [:1000] are the first 1,000.

  Either way [:x] lies inside [:y] where x < y, and [x:] is all that [:x] is not.

  Attributes:
    split: as it was given.
    first, end: None: the beginning, or the end, of all.
    percent: whether they are percentages.
  """

  split: str
  first: int | None
  end: int | None
  percent: bool

  def ends(self, counts: Sequence[int]) -> np.ndarray:
    """How many images of each class, of which there are `counts`, stand before and up to the end.

    Returns:
      (2, classes) int64.

    Raises:
      SourceError: the part begins or ends outside of all images, or not after its beginning.
    """
    whole = 100 if self.percent else sum(counts)
    first, end = 0 if self.first is None else self.first, whole if self.end is None else self.end
    first, end = (cut + whole if cut < 0 else cut for cut in (first, end))
    if not 0 <= first < end <= whole:
      raise _no_part(self.split, f" (of {whole:,} images)" if not self.percent else "")
    if self.percent:
      return np.array([[round(n * cut / 100) for n in counts] for cut in (first, end)])
    places = np.concatenate([(np.arange(n) + 0.5) / n for n in counts])
    labels = np.repeat(np.arange(len(counts)), counts)[np.argsort(places, kind="stable")]
    return np.stack([np.bincount(labels[:cut], minlength=len(counts)) for cut in (first, end)])


def parse(split: str) -> Part | None:
  """The part that a split names; None: all images.

  Raises:
    SourceError: it names none.
  """
  match = _PART.fullmatch(split)
  if not match and split:
    raise _no_part(split)
  cuts = [cut for cut in match.groups() if cut] if match else []
  if not cuts:
    return None
  if len({cut[-1] == "%" for cut in cuts}) > 1:
    raise _no_part(split)
  numbers = (cut and int(cut.rstrip("%")) for cut in match.group("first", "end"))
  return Part(split, *numbers, percent=cuts[0][-1] == "%")


def choose(part: Part | None, names: dict[str, list[str]], *, by_name: bool) -> list[list[str]]:
  """The names in a part of each class, sorted.

  A class is put into a random order that depends on the names of its files alone: a name keeps its
  place among the others whatever is added to them, on every host, wherever the folder is.

  Args:
    part: None: all.
    names: {folder of a class: names in there}.
    by_name: the order is that of the names, as before release 0.2.0.

  Raises:
    SourceError: as `Part.ends`, or the part has no image of a class.
  """
  if part is None:
    return [sorted(one) for one in names.values()]
  ordered = [sorted(one, key=None if by_name else _random) for one in names.values()]
  cuts = part.ends([len(one) for one in ordered])
  chosen = [sorted(one[first:end]) for one, first, end in zip(ordered, *cuts, strict=True)]
  for folder, one in itertools.compress(names.items(), [not one for one in chosen]):
    raise SourceError(
      f'Folder "{folder}" has {len(one)} images, and none of them is in its part'
      f" {part.split}; add images, or take a larger part."
    )
  return chosen


def _random(name: str) -> tuple[bytes, str]:
  """Sorts names at random."""
  return hashlib.blake2b(os.fsencode(name), digest_size=16, key=_KEY).digest(), name


def _no_part(split: str, of: str = "") -> SourceError:
  return SourceError(
    f'A "folder" source{of} has no split {split!r}; set it to "" for all images, or to a part of'
    ' each class, such as "[:90%]" and "[90%:]".'
  )
