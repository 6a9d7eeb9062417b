"""Weights as .npz, under the published names. Files are checked before memory is allocated."""

import math
import pathlib
import zipfile

import numpy as np

from vit_jax.storage.files import write_whole
from vit_jax.weights import arrays, published
from vit_jax.weights.card import Card

MAX_EXPANSION = 20  # uncompressed bytes for each byte of the file


def load(path: pathlib.Path) -> dict:
  """Reads a tree of NumPy arrays; see `published.from_published` for the spellings of names.

  Never unpickles, and allocates memory only after the claimed sizes agree with the file's.

  Raises:
    ValueError: the file is not an .npz of arrays, or claims more than it holds or than is allowed.
  """
  with arrays.reading(path, ".npz"), zipfile.ZipFile(path) as archive:
    entries = archive.infolist()
    _check_bounds(entries, path.stat().st_size)
    flat = {e.filename.removesuffix(".npy"): _read(archive, e) for e in entries}
    return published.from_published(flat)


def save(path: pathlib.Path, params: dict, known: Card | None = None):
  """Writes a tree of arrays under the published names; stacked blocks are unstacked."""
  flat = {name: np.asarray(x) for name, x in published.to_published(params).items()}

  def fill(partial: str):
    with open(partial, "wb") as file:
      np.savez(file, **flat)

  write_whole(str(path), fill)


def _check_bounds(entries, file_bytes):
  if len(entries) > arrays.MAX_ARRAYS:
    raise ValueError(f"it holds {len(entries):,} arrays; the most is {arrays.MAX_ARRAYS:,}")
  if len({entry.filename for entry in entries}) != len(entries):
    raise ValueError("two of its arrays have the same name")
  total = sum(entry.file_size for entry in entries)
  if total > arrays.MAX_BYTES:
    raise ValueError(f"it expands to {total:,} bytes; the most is {arrays.MAX_BYTES:,}")
  if total > MAX_EXPANSION * file_bytes:
    raise ValueError(
      f"it expands from {file_bytes:,} to {total:,} bytes, more than {MAX_EXPANSION} times"
    )


def _read(archive, entry) -> np.ndarray:
  """Reads one array, after checking its header against the size of its entry."""
  name = entry.filename
  if not name.endswith(".npy"):
    raise ValueError(f"{name} inside is not an array")
  with archive.open(entry) as file:
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
      raise ValueError(f"{name} has version {version}, which is unknown")
    read_header = {
      (1, 0): np.lib.format.read_array_header_1_0,
      (2, 0): np.lib.format.read_array_header_2_0,
    }[version]
    shape, fortran_order, dtype = read_header(file)
    if dtype.hasobject:
      raise ValueError(f"{name} holds pickled objects, which are never unpickled")
    claimed = math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or claimed != entry.file_size - file.tell():
      raise ValueError(
        f"{name} claims shape {shape} of {dtype}, {claimed:,} bytes, but has "
        f"{entry.file_size - file.tell():,}"
      )
    order = "F" if fortran_order else "C"
    return np.frombuffer(file.read(claimed), dtype).reshape(shape, order=order)
