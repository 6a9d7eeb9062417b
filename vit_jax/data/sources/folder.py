"""A folder of images, DIR/class/file or files without classes; all of them or a part."""

import bisect
import functools
import hashlib
import itertools
import logging
import os
import re
from collections.abc import Iterator

import numpy as np

from vit_jax.config import reading
from vit_jax.data import image_files
from vit_jax.data.image_files import Found, LeftOut
from vit_jax.data.sources import part, placed
from vit_jax.data.sources.base import Block, Example, SourceError
from vit_jax.process.text import nfc

_log = logging.getLogger(__name__)
_CLASSES = re.compile(r" \(\d+ classes: [0-9a-f]{16}\)")  # how many files each class has


class Folder:
  """Images in DIR/class and the folders below it; classes are the sorted names of DIR's folders.

  The names are those that `nfc` gives, so that a folder from a Mac has the same classes.

  Without labels, the source has all images in DIR and the folders below it.

  Entries that are not images by `image_files` are left out; a line in the log counts them.

  Args:
    directory: DIR.
    split: "" for all images, or a random part of each class, as in `part`: "[:90%]" is nine tenths
      of it, to the nearest image, and "[90%:]" is the rest.
    labelled: whether the folders in DIR are classes. If not, a part is a part of all images.

  Raises:
    SourceError: DIR does not exist or cannot be read, a class has no images in this part or cannot
      be read, links put one folder into two classes, or the split is not a part.

  Attributes:
    left_out: all entries in DIR and its classes that are not images, for every part.
  """

  multi_label = False

  def __init__(self, directory: str, *, split: str, labelled: bool = True):
    root = os.path.abspath(os.path.expanduser(directory))
    _check_there(root, "a folder of images for each class" if labelled else "images")
    names, self.left_out = _class_folders(root) if labelled else ([""], LeftOut())
    self.class_names = nfc(filter(None, names))
    self._folders = [os.path.join(root, name) if name else root for name in names]
    cut = part.parse(split)
    found = [_images(folder, "Class folder" if labelled else "Folder") for folder in self._folders]
    _check_apart(root, names, found)
    for name, one in zip(names, found, strict=True):
      self.left_out.update(one.left_out, name)
    images = {folder: one.names for folder, one in zip(self._folders, found, strict=True)}
    listings = part.choose(cut, images)
    _tell(root, self.left_out.in_words())
    # One array of names for each class: a list of 1.3 million str objects would make every pickle,
    # fork and garbage collection slow.
    self._names = [np.array([os.fsencode(name) for name in files]) for files in listings]
    self._ends = list(itertools.accumulate(len(files) for files in listings))

  @property
  def identity(self) -> str:
    """Digests of the names of classes and files, and of the number of files in each class.

    The place of the folder does not matter.
    """
    listing = hashlib.sha256("/".join(self.class_names).encode(errors="surrogateescape"))
    for names in self._names:
      listing.update(b"/" + b"/".join(name.replace(b"/", b"\0") for name in names.tolist()))
    names = f"folder {listing.hexdigest()[:16]}"
    if not self.class_names:
      return names
    counts = hashlib.sha256(repr([len(files) for files in self._names]).encode()).hexdigest()[:16]
    return f"{names} ({len(self.class_names)} classes: {counts})"

  def __len__(self) -> int:
    return self._ends[-1]

  def __getitem__(self, index: int) -> Example:
    path = self.name(index)
    image = reading.read_bytes(path, most=image_files.MOST_BYTES)
    return Example(image, self.labels(index), path)

  def labels(self, index: int) -> tuple[int, ...]:
    """The class of the file's folder."""
    return (self._folder(index),) if self.class_names else ()

  def name(self, index: int) -> str:
    """The file's path."""
    folder = self._folder(index)
    file = os.fsdecode(bytes(self._names[folder][index - self._ends[folder]]))
    return f"{self._folders[folder]}/{file}"

  def blocks(self) -> Iterator[Block]:
    """The files, grouped by the real folders that hold them."""
    for folder, files, end in zip(self._folders, self._names, self._ends, strict=True):
      rows = range(end - len(files), end)
      yield from placed.blocks(folder, files, rows)

  def _folder(self, index: int) -> int:
    """Which of the listed folders an example is in."""
    return bisect.bisect_right(self._ends, index)


def without_classes(identity: str) -> str:
  """The identity of a source without what tells the classes of a folder's files.

  Such identities are those of releases before 0.2.0, and of sources whose labels do not matter.
  """
  return _CLASSES.sub("", identity)


def _check_there(directory: str, holds: str) -> None:
  if not os.path.isdir(directory):
    raise SourceError(f'There is no folder "{directory}"; give one that holds {holds}.')


def _class_folders(directory: str) -> tuple[list[str], LeftOut]:
  """Sorted names of DIR's folders, and the other entries of DIR."""
  names, left_out = [], LeftOut()
  with os.scandir(directory) as entries:
    for entry in entries:
      kind = image_files.kind_of(entry)
      if kind == "folder":
        names.append(entry.name)
      else:
        left_out.add("in no class folder" if kind == "image" else kind, entry.name)
  if not names:
    raise SourceError(
      f'"{directory}" has no folders inside; put the images of each class into a folder of its own,'
      " DIR/class/image.jpg."
    )
  names.sort(key=lambda name: nfc([name]))
  for one, other in itertools.pairwise(names):
    if nfc([one]) == nfc([other]):
      raise SourceError(
        f'"{directory}" has two folders for class {one!r}, {one!a} and {other!a}; put '
        "their images into one."
      )
  return names, left_out


def _images(directory: str, kind: str) -> Found:
  """The images in a folder, a `kind` in messages, and below it."""
  try:
    found = image_files.find(directory)
  except OSError as error:
    raise SourceError(
      f'Folder "{error.filename}" cannot be read ({error.strerror}); make it readable, or remove'
      " it."
    ) from error
  if not found.names:
    others = found.left_out.in_words()
    raise SourceError(
      f'{kind} "{directory}" has no {image_files.LIST} files; add images or remove it.'
      + (f" Left out: {others}." if others else "")
    )
  return found


def _check_apart(root: str, names: list[str], found: list[Found]):
  """Refuses a folder that links put into two classes."""
  seen = {}
  for name, one in zip(names, found, strict=True):
    for identity, inner in one.folders.items():
      path = os.path.join(root, name, inner).rstrip("/")
      if identity in seen:
        raise SourceError(
          f'"{seen[identity]}" and "{path}" are one folder, by a link: its images would be in two'
          " classes; remove the link."
        )
      seen[identity] = path


@functools.cache
def _tell(directory: str, left_out: str) -> None:
  """Logs what is left out, only once for a folder that is opened for several parts."""
  if left_out:
    _log.warning("Left out of %r: %s.", directory, left_out)
