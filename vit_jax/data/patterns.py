"""The image files that a command line names: files, folders and globs."""

import glob
import logging
import os
import pathlib
from collections.abc import Sequence

from vit_jax.data import image_files
from vit_jax.storage.paths import local_path

_log = logging.getLogger(__name__)


def find_images(patterns: Sequence[str]) -> list[pathlib.Path]:
  """The files that patterns name: single files, all images below directories, matches of globs.

  The files come in the order of the patterns, sorted within each pattern, each file once. The log
  counts the files of directories that are not images.

  Raises:
    ValueError: a pattern matches nothing.
  """
  paths = {}
  for pattern in patterns:
    for path in _images_of(pattern):
      paths.setdefault(os.path.abspath(path), path)
  return list(paths.values())


def _images_of(pattern: str) -> list[pathlib.Path]:
  if pattern and not os.path.lexists(pattern):
    pattern = str(local_path(pattern))
  path = pathlib.Path(pattern)
  if pattern and path.is_dir():
    return _images_below(path)
  if os.path.lexists(pattern):
    return [path]
  if not glob.has_magic(pattern):
    raise ValueError(f"{pattern!r} does not exist; give images, directories, or globs in quotes.")
  matches = [pathlib.Path(match) for match in glob.glob(pattern, recursive=True)]
  paths = [path for path in matches if not path.is_dir()]
  for folder in (path for path in matches if path.is_dir()):
    paths += [folder / name for name in image_files.find(folder).names]
  paths = sorted(set(paths))
  if not paths:
    raise ValueError(f"{pattern!r} matches no file; give images, directories, or globs in quotes.")
  return paths


def _images_below(folder: pathlib.Path) -> list[pathlib.Path]:
  listing = image_files.find(folder)
  others = listing.left_out.in_words()
  if not listing.names:
    message = f"{str(folder)!r} holds no {image_files.LIST} files."
    if others:
      message += f" Left out: {others}."
    raise ValueError(message)
  if others:
    _log.warning("Left out of %r: %s.", str(folder), others)
  return sorted(folder / name for name in listing.names)
