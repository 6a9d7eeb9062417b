"""A folder of images, DIR/class/file or files without classes; all of them or a part."""

import bisect
import hashlib
import itertools
import os
import re
import shlex
from collections.abc import Iterator

import numpy as np

from vit_jax.config import reading
from vit_jax.data import image_files
from vit_jax.data.image_files import Found, LeftOut
from vit_jax.data.sources import foreign, part, placed
from vit_jax.data.sources.base import Block, Example, SourceError
from vit_jax.process.text import nfc

_SPLITS = {"train", "training", "val", "valid", "validation", "test", "testing", "dev", "eval"}
_CLASSES = re.compile(r" \(\d+ classes: [0-9a-f]{16}\)")  # how many files each class has


class Folder:
  """Images in DIR/class and the folders below it; classes are the sorted names of DIR's folders.

  The names are those that `nfc` gives, so that a folder from a Mac has the same classes.

  Without labels, the source has all images in DIR and the folders below it.

  Entries that are not images by `image_files`, and class folders without files, are left out.

  Args:
    directory: DIR.
    split: "" for all images, or a random part of each class, as in `part`: "[:90%]" is nine tenths
      of it, to the nearest image, and "[90%:]" is the rest.
    labelled: whether the folders in DIR are classes. If not, a part is a part of all images.

  Raises:
    SourceError: DIR does not exist or cannot be read, its folders are splits, a class has no images
      in this part or cannot be read, links put one folder into two classes, or the split is not a
      part.

  Attributes:
    left_out: all entries in DIR and its classes that are not images, for every part.
    notes: sentences about the whole of DIR, as for `Source`.
  """

  multi_label = False

  def __init__(self, directory: str, *, split: str, labelled: bool = True):
    root = os.path.abspath(os.path.expanduser(directory))
    _check_there(root, "a folder of images for each class" if labelled else "images")
    names, self.left_out = _class_folders(root) if labelled else ([""], LeftOut())
    found = {name: _images(os.path.join(root, name)) for name in names}
    if labelled:
      _check_no_splits(directory, found)
    cut = part.parse(split)  # later, because "train" may be one of those folders
    self._take_out_empty(root, found)
    _check_apart(root, found)
    self.class_names = nfc(filter(None, found))
    self._folders = [os.path.join(root, name) if name else root for name in found]
    images = {f: one.names for f, one in zip(self._folders, found.values(), strict=True)}
    listings = part.choose(cut, images)
    self.notes = tuple(_notes(directory, self.left_out, found))
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
    image = reading.read_bytes(path, most=image_files.MAX_BYTES)
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

  def _take_out_empty(self, root: str, found: dict[str, Found]):
    """Counts all that is left out, and removes class folders without files.

    Raises:
      SourceError: there is no image, or a class has other files alone.
    """
    for name, one in list(found.items()):
      self.left_out.update(one.left_out, name)
      if not one.names and name and one.left_out.counts().keys() <= {"hidden"}:
        self.left_out.add("empty class folders", name)
        del found[name]
    if not found:
      raise SourceError(_without_images("Folder", root, self.left_out))
    for name, one in found.items():
      if not one.names:
        kind = "Class folder" if name else "Folder"
        path = os.path.join(root, name) if name else root
        raise SourceError(_without_images(kind, path, one.left_out))

  def _folder(self, index: int) -> int:
    """Which of the listed folders an example is in."""
    return bisect.bisect_right(self._ends, index)


def without_classes(identity: str) -> str:
  """The identity of a source without what tells the classes of a folder's files.

  Such identities are those of sources whose labels do not matter.
  """
  return _CLASSES.sub("", identity)


def _check_there(directory: str, holds: str) -> None:
  if not os.path.isdir(directory):
    raise SourceError(
      f'There is no folder "{directory}"; give one that holds {holds}.{foreign.advice(directory)}'
    )


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
      f" DIR/class/image.jpg.{_others(left_out)}"
    )
  names.sort(key=lambda name: nfc([name]))
  for one, other in itertools.pairwise(names):
    if nfc([one]) == nfc([other]):
      raise SourceError(
        f'"{directory}" has two folders for class {one!r}, {one!a} and {other!a}; put '
        "their images into one."
      )
  return names, left_out


def _images(directory: str) -> Found:
  """The images in a folder and below it."""
  try:
    return image_files.find(directory)
  except OSError as error:
    raise SourceError(
      f'Folder "{error.filename}" cannot be read ({error.strerror}); make it readable, or remove'
      " it."
    ) from error


def _without_images(kind: str, folder: str, left_out: LeftOut) -> str:
  return f'{kind} "{folder}" has no {image_files.LIST} files; add images or remove it.' + _others(
    left_out
  )


def _others(left_out: LeftOut) -> str:
  """What is left out, as sentences with a space before; "" if nothing is."""
  others = left_out.in_words()
  return f" Left out: {others}.{foreign.advice(others)}" if others else ""


def _check_no_splits(directory: str, found: dict[str, Found]) -> None:
  """Refuses a folder whose folders are splits: by all of their names, or two with folders inside.

  Images that lie in the splits themselves count if no two names have the same word for a split:
  "test_positive" and "test_negative" are classes.
  """
  filled = [name for name, one in found.items() if one.names]
  splits = [name for name in filled if _split_words(name)]
  nested = [name for name in splits if _nested(found[name])]
  apart = nested or len({_split_words(name) for name in splits}) == len(splits)
  if len(nested) < 2 and not (splits and splits == filled and apart):
    return
  chosen = nested if len(nested) > 1 else splits
  raise SourceError(
    f"The folders in {directory!r} are splits, not classes ({', '.join(chosen)}): "
    + _way_with_splits(directory, chosen, bool(nested))
  )


def _way_with_splits(directory: str, splits: list[str], nested: bool) -> str:
  """What to do with folders that are splits, nested or flat."""
  if not nested:
    return (
      "their images are in no folders of classes. For each split, write a CSV file with a line "
      f"path,label for each image; {foreign.DATASET}"
    )
  train = next((name for name in splits if "train" in name.lower()), splits[0])
  place = lambda name: shlex.quote(f"folder:{os.path.join(directory, name)}")
  flags = [f"--config.data.train.source={place(train)}"]
  for name in [name for name in splits if name != train][:1]:
    flags.append(f"--config.data.evaluate.val.source={place(name)}")
  return (
    f"the folders of classes are inside of them. Name each for itself: {' '.join(flags)}; "
    f"in tools/prepare_data.py --split=train={place(train)}."
  )


def _split_words(name: str) -> frozenset[str]:
  """The words of a name that are those of splits, as in "val", "Test_Set", "train2017"."""
  return frozenset(_SPLITS.intersection(re.split("[^a-z]+", name.lower())))


def _nested(one: Found) -> bool:
  """Whether all images are in folders inside."""
  return all("/" in name for name in one.names)


def _notes(directory: str, left_out: LeftOut, found: dict[str, Found]) -> Iterator[str]:
  if others := left_out.in_words():
    yield f"Left out of {directory!r}: {others}."
  inner = [(name, file) for name, one in found.items() if name for file in one.names]
  for name, file in itertools.islice((one for one in inner if "/" in one[1]), 1):
    yield f"Class folders in {directory!r} hold folders: '{name}/{file}' is of class {name!r}."


def _check_apart(root: str, found: dict[str, Found]):
  """Refuses a folder that links put into two classes."""
  seen = {}
  for name, one in found.items():
    for identity, inner in one.folders.items():
      path = os.path.join(root, name, inner).rstrip("/")
      if identity in seen:
        raise SourceError(
          f'"{seen[identity]}" and "{path}" are one folder, by a link: its images would be in two'
          " classes; remove the link."
        )
      seen[identity] = path
