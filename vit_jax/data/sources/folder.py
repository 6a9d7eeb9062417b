"""A folder of images: DIR/class/file, or a part of each class."""

import bisect
import hashlib
import itertools
import os
import re

import numpy as np

from vit_jax.data.sources.base import Example, SourceError

_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")


_PART = re.compile(r"\[((?P<first>\d{1,3})%)?:((?P<end>\d{1,3})%)?\]")


class Folder:
  """Images in DIR/class/*.{jpg,jpeg,png,webp}; classes are the sorted folder names.

  Args:
    directory: DIR.
    split: "" for all images, or a part of each class in the order of names: "[:90%]" is its first
      nine tenths, to the nearest image, and "[90%:]" what is left.

  Raises:
    SourceError: DIR is missing, DIR or one of its classes has no images in this part, or the split
      is no part.
  """

  multi_label = False

  def __init__(self, directory: str, *, split: str):
    self._directory = os.path.abspath(os.path.expanduser(directory))
    self.class_names = tuple(_class_folders(self._directory))
    paths = [os.path.join(self._directory, name) for name in self.class_names]
    percents = _percents(split)
    listings = [_part(_image_files(path), percents, directory=path) for path in paths]
    # Names in one string per class and offsets: 1.3 million str objects in a list would make
    # every pickle, fork and garbage collection slow.
    self._names = [np.array([os.fsencode(name) for name in files]) for files in listings]
    self._ends = list(itertools.accumulate(len(files) for files in listings))

  @property
  def identity(self) -> str:
    """By the names of classes and files, wherever the folder is; no file is read."""
    listing = hashlib.sha256("/".join(self.class_names).encode(errors="surrogateescape"))
    for names in self._names:
      listing.update(b"/" + b"/".join(names))
    return f"folder {listing.hexdigest()[:16]}"

  def __len__(self) -> int:
    return self._ends[-1]

  def __getitem__(self, index: int) -> Example:
    path = self.name(index)
    with open(path, "rb", buffering=0) as stream:
      return Example(stream.read(), self.labels(index), path)

  def labels(self, index: int) -> tuple[int, ...]:
    """The class that the file's folder stands for."""
    return (bisect.bisect_right(self._ends, index),)

  def name(self, index: int) -> str:
    """The file's path."""
    (label,) = self.labels(index)
    file = os.fsdecode(bytes(self._names[label][index - self._ends[label]]))
    return f"{self._directory}/{self.class_names[label]}/{file}"


def _class_folders(directory: str) -> list[str]:
  if not os.path.isdir(directory):
    raise SourceError(
      f'There is no folder "{directory}"; give one that holds a folder of images for each class.'
    )
  with os.scandir(directory) as entries:
    names = sorted(e.name for e in entries if e.is_dir() and not e.name.startswith("."))
  if not names:
    raise SourceError(
      f'"{directory}" has no folders inside; put the images of each class into a folder of its own,'
      " DIR/class/image.jpg."
    )
  return names


def _image_files(directory: str) -> list[str]:
  """Sorted names of the images in one class folder; no file is opened or stat-ed."""
  with os.scandir(directory) as entries:
    names = sorted(e.name for e in entries if e.name.lower().endswith(_SUFFIXES))
  if not names:
    raise SourceError(
      f'Class folder "{directory}" has no {", ".join(_SUFFIXES)} files; add images or remove it.'
    )
  return names


def _percents(split: str) -> tuple[int, int]:
  """Where the part of each class begins and ends, in per cent of its images."""
  match = _PART.fullmatch(split or "[:]")
  first, end = (int(match["first"] or 0), int(match["end"] or 100)) if match else (0, 0)
  if not 0 <= first < end <= 100:
    raise SourceError(
      f'A "folder" source has no split "{split}"; set it to "" for all images, or to a part of each'
      ' class, such as "[:90%]" and "[90%:]".'
    )
  return first, end


def _part(names: list[str], percents: tuple[int, int], *, directory: str) -> list[str]:
  """The names in a part of one class; the end of one part is the beginning of the next."""
  first, end = (round(len(names) * share / 100) for share in percents)
  if first == end:
    raise SourceError(
      f'Class folder "{directory}" has {len(names)} images, and its part from {percents[0]}% to'
      f" {percents[1]}% is empty; add images, or take a larger part."
    )
  return names[first:end]
