"""Which files are images: by suffix and kind of file, in a folder and all folders below it."""

import collections
import dataclasses
import heapq
import os

SUFFIXES = {
  ".jpg": "JPEG",
  ".jpeg": "JPEG",
  ".jpe": "JPEG",
  ".jfif": "JPEG",
  ".png": "PNG",
  ".webp": "WEBP",
  ".tif": "TIFF",
  ".tiff": "TIFF",
  ".bmp": "BMP",
  ".ppm": "PPM",
  ".pgm": "PPM",
  ".pbm": "PPM",
}
LIST = ", ".join(SUFFIXES)
MOST_BYTES = 2**30  # of an encoded image: larger files are read by nobody

_SHOWN = 6  # reasons in a message
_SUFFIX_SHOWN = 12  # characters


class LeftOut:
  """How many entries of folders are no images, by reason, with the name of one for each."""

  def __init__(self):
    self._counts, self._examples = collections.Counter(), {}

  def add(self, reason: str, path: str) -> None:
    """Counts one more."""
    self._counts[reason] += 1
    self._examples.setdefault(reason, path)

  def update(self, other: "LeftOut", within: str) -> None:
    """Adds those of the folder `within`."""
    self._counts.update(other._counts)
    for reason, path in other._examples.items():
      self._examples.setdefault(reason, os.path.join(within, path))

  def counts(self) -> dict[str, int]:
    """By reason, most first."""
    return dict(self._counts.most_common())

  def in_words(self) -> str:
    """One line; "" where nothing is left out."""
    words = [
      f"{count:,} {reason} ({self._examples[reason]!r})"
      for reason, count in self._counts.most_common(_SHOWN)
    ]
    others = self._counts.total() - sum(n for _, n in self._counts.most_common(_SHOWN))
    return ", ".join([*words, f"{others:,} others"] if others else words)


@dataclasses.dataclass(frozen=True)
class Found:
  """What a folder holds.

  Attributes:
    names: of the images, with the folders on the way to them ("inner/x.jpg"), sorted.
    left_out: everything else.
  """

  names: list[str]
  left_out: LeftOut


def find(folder: str) -> Found:
  """The images in a folder and in all folders below it; no file is opened.

  Links are followed. Each folder is read once, under its own path rather than that of a link to it,
  so that links in a circle come to an end. What begins with a dot is left out.

  Raises:
    OSError: a folder cannot be read.
  """
  names, left_out, known = [], LeftOut(), set()
  pending = [(False, "")]  # whether a link led there, and the path: links come last
  while pending:
    linked, inner = heapq.heappop(pending)
    path, prefix = os.path.join(folder, inner), inner and f"{inner}/"
    identity = os.stat(path)
    if (identity.st_dev, identity.st_ino) in known:
      left_out.add("folders that are read already", inner)
      continue
    known.add((identity.st_dev, identity.st_ino))
    with os.scandir(path) as entries:
      for entry in entries:
        name = prefix + entry.name
        kind = kind_of(entry)
        if kind == "folder":
          heapq.heappush(pending, (linked or entry.is_symlink(), name))
        elif kind == "image":
          names.append(name)
        else:
          left_out.add(kind, name)
  return Found(sorted(names), left_out)


def kind_of(entry: os.DirEntry) -> str:
  """Of an entry: "folder", "image", or why it is neither, in words for several."""
  try:
    if entry.name.startswith("."):
      return "hidden"
    if entry.is_dir():
      return "folder"
    suffix = os.path.splitext(entry.name)[1]
    if suffix.lower() in SUFFIXES:
      return "image" if entry.is_file() else "no regular files"
  except OSError:  # links in a circle, or to where nobody may look
    return "links to nowhere"
  return f"with the suffix {suffix[:_SUFFIX_SHOWN]!r}" if suffix else "without a suffix"
