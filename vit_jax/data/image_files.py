"""Finds the image files in a folder and all folders below it, by suffix and kind of file."""

import collections
import dataclasses
import heapq
import os
from collections.abc import Iterator

from vit_jax.storage import files
from vit_jax.storage.base import Entry, FileVersion
from vit_jax.storage.paths import Path

SUFFIXES = {
  ".jpg": "JPEG",
  ".jpeg": "JPEG",
  ".jpe": "JPEG",
  ".jfif": "JPEG",
  ".png": "PNG",
  ".apng": "PNG",
  ".webp": "WEBP",
  ".gif": "GIF",
  ".avif": "AVIF",
  ".tif": "TIFF",
  ".tiff": "TIFF",
  ".bmp": "BMP",
  ".ppm": "PPM",
  ".pgm": "PPM",
  ".pbm": "PPM",
  ".pnm": "PPM",
}
LIST = ", ".join(SUFFIXES)
ARRAYS = ".npy"  # images only in a folder without others: beside them it may hold anything
MAX_BYTES = 2**30  # largest image file; larger ones are not read

_ARRAY = f"with the suffix {ARRAYS!r}"  # as by `_with_suffix`
_SHOWN = 6  # reasons in a message
_SUFFIX_SHOWN = 12  # characters of a suffix in a message


class LeftOut:
  """Counts folder entries that are not images, by reason, and keeps one name for each reason."""

  def __init__(self):
    self._counts = collections.Counter()
    self._examples = {}

  def add(self, reason: str, path: str) -> None:
    """Counts one entry."""
    self._counts[reason] += 1
    self._examples.setdefault(reason, path)

  def update(self, other: "LeftOut", within: str) -> None:
    """Adds the counts of the folder at the path `within`."""
    self._counts.update(other._counts)
    for reason, path in other._examples.items():
      self._examples.setdefault(reason, os.path.join(within, path))

  def counts(self) -> dict[str, int]:
    """{reason: number}, the most frequent reason first."""
    return dict(self._counts.most_common())

  def in_words(self) -> str:
    """One line of text; "" if nothing is left out."""
    shown = self._counts.most_common(_SHOWN)
    words = [f"{count:,} {reason} ({self._examples[reason]!r})" for reason, count in shown]
    others = self._counts.total() - sum(count for _, count in shown)
    if others:
      words.append(f"{others:,} others")
    return ", ".join(words)


@dataclasses.dataclass(frozen=True)
class Listing:
  """The content of a folder.

  Attributes:
    names: sorted paths of the images, relative to the folder ("inner/x.jpg").
    stamps: the version of each image; None if the storage does not list it with the name.
    left_out: all other entries.
  """

  names: list[str]
  stamps: list[FileVersion | None]
  left_out: LeftOut


def find(folder: Path) -> Listing:
  """Finds the images in a folder and in all folders below it; opens no file.

  Follows links. Reads each folder once, under its own path rather than the path of a link to it, so
  circular links are harmless. Leaves out names that begin with a dot.

  Raises:
    OSError: a folder cannot be read.
  """
  found = {}
  arrays = {}
  left_out = LeftOut()
  for name, kind, entry in below(folder):
    if kind == "image":
      found[name] = getattr(entry, "stamp", None)
    elif kind == _ARRAY:
      arrays[name] = getattr(entry, "stamp", None)
    else:
      left_out.add(kind, name)
  if found:
    for name in arrays:
      left_out.add(_ARRAY, name)
  else:
    found = arrays
  names = sorted(found)
  return Listing(names, [found[name] for name in names], left_out)


def of_suffix(folder: Path, suffix: str) -> tuple[list[str], list[str]]:
  """Finds the files of a suffix in a folder and in all folders below it, as `find` does.

  Returns:
    Their sorted paths, relative to the folder; and a note on hidden ones, which are left out, if
    there are any: macOS writes "._x.tar" beside "x.tar".

  Raises:
    OSError: a folder cannot be read.
  """
  names = []
  left_out = LeftOut()
  for name, kind, _ in below(folder):
    if not name.endswith(suffix):
      continue
    if kind == "hidden":
      left_out.add(kind, name)
    elif kind == _with_suffix(suffix):
      names.append(name)
  notes = [f"Left out of {str(folder)!r}: {words}." for words in [left_out.in_words()] if words]
  return sorted(names), notes


def below(folder: Path) -> Iterator[tuple[str, str, Entry | None]]:
  """The path within a folder, the kind as by `kind_of`, and the entry of all that is below it.

  Folders themselves are left out, except those that are read already, without an entry.
  """
  known = set()
  pending = [(False, "")]  # (whether it is below a link, path): links are read last
  while pending:
    linked, inner = heapq.heappop(pending)
    path = folder / inner
    prefix = inner and f"{inner}/"
    identity = files.identity(path)
    if identity in known:
      yield inner, "folders that are read already", None
      continue
    known.add(identity)
    for entry in files.scan(path):
      name = prefix + entry.name
      kind = kind_of(entry)
      if kind == "folder":
        heapq.heappush(pending, (linked or entry.is_symlink(), name))
      else:
        yield name, kind, entry


def kind_of(entry: Entry) -> str:
  """The kind of an entry: "folder", "image", or why it is neither, as a plural noun."""
  try:
    if entry.name.startswith("."):
      return "hidden"
    if entry.is_dir():
      return "folder"
    suffix = os.path.splitext(entry.name)[1]
    if suffix.lower() in SUFFIXES:
      return "image" if entry.is_file() else "not regular files"
  except OSError:  # a circular link, or a link to a folder without permission
    return "links to nowhere"
  if not suffix:
    return "without a suffix"
  return _with_suffix(suffix)


def _with_suffix(suffix: str) -> str:
  """The kind of a file that is no image."""
  return f"with the suffix {suffix[:_SUFFIX_SHOWN]!r}"
