"""Finds the real folders of files, whatever paths and links lead to them."""

import collections
import os
from collections.abc import Iterator

import numpy as np

from vit_jax.data.sources.base import Block


def blocks(folder: str, names: np.ndarray, rows: range) -> Iterator[Block]:
  """Groups the files of a folder by the real folders that hold them; lists each folder again.

  Args:
    folder: the folder.
    names: (n,) bytes, paths of the files relative to the folder.
    rows: the rows of the files in a source.
  """
  if not names.size:
    return
  root = os.fsencode(folder)
  if (np.char.find(names, b"/") < 0).all() and not _links(root):  # the usual case
    yield Block(os.fsdecode(os.path.realpath(root)), names, rows)
    return
  found = collections.defaultdict(list)
  real = {}  # {folder below the root: (its real path, its files that are links)}
  for row, name in zip(rows, names.tolist(), strict=True):
    below, file = os.path.split(name)
    if below not in real:
      path = os.path.join(root, below)
      real[below] = os.path.realpath(path), _links(path)
    place, links = real[below]
    if file in links:
      place, file = os.path.split(os.path.realpath(os.path.join(place, file)))
    found[place].append((file, row))
  for place, pairs in found.items():
    files, numbers = zip(*pairs, strict=True)
    yield Block(os.fsdecode(place), np.array(files), np.array(numbers))


def _links(path: bytes) -> set[bytes]:
  """Names of the symbolic links in a folder."""
  with os.scandir(path) as entries:
    return {entry.name for entry in entries if entry.is_symlink()}
