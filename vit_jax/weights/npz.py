"""Weights as .npz, in the names of the published files; strangers' files are bounded first."""

import math
import pathlib
import zipfile

import numpy as np

from vit_jax.weights import published

# What an honest file of weights never exceeds.
MAX_BYTES = 32 * 2**30
MAX_EXPANSION = 20  # uncompressed bytes for each byte of the file
MAX_ARRAYS = 5_000


def load(path: pathlib.Path) -> dict:
  """Reads a tree of NumPy arrays; see `published.from_published` for the spellings.

  Nothing is unpickled, and nothing allocated before the sizes have been compared with the file's.

  Raises:
    ValueError: not an .npz of arrays, or one that claims more than it holds or should.
  """
  with path.open("rb") as file:
    try:
      with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        _check_bounds(entries, path.stat().st_size)
        flat = {e.filename.removesuffix(".npy"): _read(archive, e) for e in entries}
      return published.from_published(flat)
    except Exception as error:  # parsers raise whatever strange bytes lead them to
      raise ValueError(f"{path} cannot be read as .npz weights: {error}.") from error


def save(path: pathlib.Path, params: dict):
  """Writes a tree of arrays under the published names, stacked blocks taken apart."""
  temporary = path.with_name(path.name + ".tmp")
  with temporary.open("wb") as file:
    np.savez(file, **{name: np.asarray(x) for name, x in published.to_published(params).items()})
  temporary.replace(path)


def _check_bounds(entries, file_bytes):
  if len(entries) > MAX_ARRAYS:
    raise ValueError(f"it holds {len(entries)} arrays; the most is {MAX_ARRAYS}")
  if len({entry.filename for entry in entries}) != len(entries):
    raise ValueError("two of its arrays have the same name")
  total = sum(entry.file_size for entry in entries)
  if total > MAX_BYTES:
    raise ValueError(f"it expands to {total:,} bytes; the most is {MAX_BYTES:,}")
  if total > MAX_EXPANSION * file_bytes:
    raise ValueError(
      f"it expands from {file_bytes:,} to {total:,} bytes, more than {MAX_EXPANSION} times"
    )


def _read(archive, entry) -> np.ndarray:
  """One array, once its header agrees with the size of its entry."""
  name = entry.filename
  if not name.endswith(".npy"):
    raise ValueError(f"{name} inside is no array")
  with archive.open(entry) as file:
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
      raise ValueError(f"{name} has version {version}, which is not known")
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
        f"{name} claims shape {shape} of {dtype}, {claimed:,} bytes, and has "
        f"{entry.file_size - file.tell():,}"
      )
    array = np.frombuffer(file.read(claimed), dtype).reshape(
      shape, order="F" if fortran_order else "C"
    )
  if not (dtype.kind == "f" or dtype.kind == "V" or array.ndim == 0):
    raise ValueError(f"{name} holds {dtype}; weights are floating-point numbers")
  return array
