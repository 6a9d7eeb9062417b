"""A folder of images, DIR/class/file or files without classes; all of them or a part."""

import itertools
import logging
import os
from collections.abc import Iterator

import numpy as np

from vit_jax.data import byte_ranges, image_files, sources
from vit_jax.data.image_files import LeftOut, Listing
from vit_jax.data.sources import part
from vit_jax.data.sources.base import Block, SourceError
from vit_jax.data.sources.table import Files, Labels, placed
from vit_jax.process.text import listed, nfc, quoted
from vit_jax.storage import files
from vit_jax.storage.paths import Path, path_of

_log = logging.getLogger(__name__)


class Folder(Files):
  """Images in DIR/class and the folders below it; classes are the sorted names of DIR's folders.

  The names are normalised by `nfc`, so that a folder from a Mac has the same classes.

  Without labels, the source has all images in DIR and the folders below it.

  Entries that are not images by `image_files`, and class folders without files, are left out.

  Args:
    directory: DIR.
    split: "" for all images, or a random part of each class, as in `part`: "[:90%]" is nine tenths
      of it, to the nearest image, and "[90%:]" is the rest.
    label_key: "": the folders in DIR are no classes, and a part is taken from all images.

  Raises:
    SourceError: DIR does not exist or cannot be read, its folders are splits, a class has no images
      in this part or cannot be read, or the split is not a part.
  """

  form = "folder:DIR"

  def __init__(self, directory: str, *, split: str = "", label_key: str = "label"):
    root = path_of(self.anywhere(directory))
    if label_key:
      _check_there(root, "a folder of images for each class")
      class_folders, left_out = _class_folders(root)
      listings = _listings(root, class_folders)
      _check_no_splits(directory, listings)
    else:
      _check_there(root, "images")
      left_out = LeftOut()
      listings = _listings(root, [""])
    listings = _without_empty(root, listings, left_out)
    self.notes = tuple(_notes(directory, left_out, listings))
    counts = [len(listing.names) for listing in listings.values()]
    folders = np.repeat(np.arange(len(listings)), counts)
    # An array: a list of 1.3 million str objects would make every garbage collection slow.
    paths = itertools.chain(*(listing.names for listing in listings.values()))
    names = np.array([os.fsencode(name) for name in paths])
    labels = Labels.of_numbers(folders, listings) if label_key else Labels.none(len(names))
    super().__init__("folder", names, labels, split)
    self.distant = byte_ranges.distant(root)
    self._folders = [root / name for name in listings]
    self._names = names[self.rows]
    self._folder_of = folders[self.rows]
    stamps = itertools.chain(*(listing.stamps for listing in listings.values()))
    self._stamps = byte_ranges.FileVersions(stamps)

  def _path(self, index: int) -> Path:
    return self._folders[self._folder_of[index]] / os.fsdecode(bytes(self._names[index]))

  def blocks(self) -> Iterator[Block]:
    """The files, grouped by the real folders that hold them."""
    for number, folder in enumerate(self._folders):
      first, end = np.searchsorted(self._folder_of, [number, number + 1]).tolist()
      if first < end:
        yield from placed(folder, self._names[first:end], range(first, end))

  @classmethod
  def named_parts(cls, argument: str) -> dict[str, tuple[str, str]]:
    """The folders of DIR that are splits with folders of classes.

    Other folders are left out, such as splits without classes; a warning names them. If only one
    split has classes, all folders must be splits, each another one: a class may be called "train".
    """
    root = path_of(cls.anywhere(argument))
    _check_there(root, "a folder of images for each class")
    names = [entry.name for entry in files.scan(root) if entry.is_dir()]
    names = [name for name in names if not name.startswith(".")]
    words = {name: min(part.split_words(name), default="") for name in names}
    nested = [name for name in names if words[name] and _has_folders(root / name)]
    all_differ = all(words.values()) and len({*words.values()}) == len(names)
    if len({words[name] for name in nested}) < 2 and not all_differ:
      return {}
    what = f'"{root}" has several folders'
    chosen = part.by_word(nested, what, "move their images into one called")
    chosen = {word: name for word, name in chosen.items() if part.split_words(word) == {word}}
    if chosen and (unused := sorted({*names} - {*chosen.values()})):
      _log.warning("Not used of %r: %s.", argument, listed(unused))
    return {word: (os.path.join(argument, name), "") for word, name in chosen.items()}

  @classmethod
  def recognises(cls, path: Path) -> bool:
    """Whether the path is a folder; the other sources are asked first."""
    return files.is_folder(path)


def _listings(root: Path, names: list[str]) -> dict[str, Listing]:
  """The images in each of these folders of `root`."""
  found = files.at_once(root, lambda name: _images(root / name), names)
  return dict(zip(names, found, strict=True))


def _has_folders(directory: Path) -> bool:
  """Whether a folder holds folders that are not hidden."""
  return any(x.is_dir() and not x.name.startswith(".") for x in files.scan(directory))


def _check_there(directory: Path, holds: str) -> None:
  if not files.is_folder(directory):
    raise SourceError(
      f'There is no folder "{directory}"; give one that holds {holds}.'
      + (sources.advice_on(str(directory)) or sources.near(str(directory)))
    )


def _class_folders(directory: Path) -> tuple[list[str], LeftOut]:
  """Sorted names of DIR's folders, and the other entries of DIR."""
  names = []
  left_out = LeftOut()
  for entry in files.scan(directory):
    kind = image_files.kind_of(entry)
    if kind == "folder":
      names.append(entry.name)
    elif kind == "image":
      left_out.add("in no class folder", entry.name)
    else:
      left_out.add(kind, entry.name)
  if not names:
    raise SourceError(
      f'"{directory}" has no folders inside; put the images of each class into a folder of its own,'
      f" DIR/class/image.jpg, or set label_key to '' if they have no labels.{_others(left_out)}"
    )
  names.sort(key=lambda name: nfc([name]))
  for name, after in itertools.pairwise(names):
    if nfc([name]) == nfc([after]):
      raise SourceError(
        f'"{directory}" has two folders for class {name!r}, {name!a} and {after!a}; put '
        "their images into one."
      )
  return names, left_out


def _images(directory: Path) -> Listing:
  """The images in a folder and below it."""
  try:
    return image_files.find(directory)
  except OSError as error:
    raise SourceError(
      f'Folder "{error.filename}" cannot be read ({error.strerror}); make it readable, or remove'
      " it."
    ) from error


def _without_empty(
  root: Path, listings: dict[str, Listing], left_out: LeftOut
) -> dict[str, Listing]:
  """The class folders with images; adds the entries without images to `left_out`.

  Raises:
    SourceError: there is no image, or a class has only other files.
  """
  filled = dict(listings)
  for name, listing in listings.items():
    left_out.update(listing.left_out, name)
    if not listing.names and name and listing.left_out.counts().keys() <= {"hidden"}:
      left_out.add("empty class folders", name)
      del filled[name]
  if not filled:
    raise SourceError(_without_images("Folder", root, left_out))
  for name, listing in filled.items():
    if not listing.names:
      kind = "Class folder" if name else "Folder"
      raise SourceError(_without_images(kind, root / name, listing.left_out))
  return filled


def _without_images(kind: str, folder: Path, left_out: LeftOut) -> str:
  return f'{kind} "{folder}" has no {image_files.LIST} files; add images or remove it.' + _others(
    left_out
  )


def _others(left_out: LeftOut) -> str:
  """The entries that are left out, as sentences after a space; "" if there are none."""
  others = left_out.in_words()
  if not others:
    return ""
  return f" Left out: {others}.{sources.advice_on(others)}"


def _check_no_splits(directory: str, listings: dict[str, Listing]) -> None:
  """Refuses a folder of splits.

  These are folders whose names have words for splits. They are no classes if two of them hold
  folders, or one does and another has another word, whatever lies beside them; or if there are no
  other folders, and each has another word: "test_positive" and "test_negative" are classes.
  """
  filled = [name for name, listing in listings.items() if listing.names]
  splits = [name for name in filled if part.split_words(name)]
  nested = [name for name in splits if _nested(listings[name])]
  words = {part.split_words(name) for name in listings} - {frozenset()}
  differ = len(nested) > 1 or (nested and len(words) > 1)
  apart = nested or len({part.split_words(name) for name in splits}) == len(splits)
  if not differ and not (splits and splits == filled and apart):
    return
  chosen = nested if len(nested) > 1 else splits
  raise SourceError(
    f"The folders in {directory!r} are splits, not classes ({', '.join(chosen)}): "
    + _way_with_splits(directory, nested)
  )


def _way_with_splits(directory: str, nested: list[str]) -> str:
  """Advice for folders that are splits; those in `nested` hold folders of classes."""
  if not nested:
    return f"their images are in no folders of classes. For each split, {sources.TABLE}"
  places = [quoted(f"folder:{os.path.join(directory, name)}") for name in nested]
  return f"the folders of classes are inside of them. Name one split: {' or '.join(places)}."


def _nested(listing: Listing) -> bool:
  """Whether all images lie in inner folders."""
  return all("/" in name for name in listing.names)


def _notes(directory: str, left_out: LeftOut, listings: dict[str, Listing]) -> Iterator[str]:
  if others := left_out.in_words():
    yield f"Left out of {directory!r}: {others}."
  if like_splits := [name for name in listings if part.is_split(name)]:
    named = listed(like_splits)
    yield f"Folders of {directory!r} are read as classes, not as splits: {named}."
  inner = ((name, file) for name in listings for file in listings[name].names if "/" in file)
  name, file = next(inner, ("", ""))
  if name:  # "" without labels
    yield f"Class folders in {directory!r} hold folders: '{name}/{file}' is of class {name!r}."
