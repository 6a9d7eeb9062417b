"""Files of features, written image by image: NumPy's *.npz, or Parquet."""

import itertools
import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Mapping

import numpy as np
from numpy.lib import format as npy

from vit_jax.storage import files
from vit_jax.storage.paths import Path

Rows = Iterable[tuple[str, np.ndarray]]  # (name, features float32 of one shape) of each image
Facts = Mapping[str, str | int | bool]
GROUP = 1024  # rows of a Parquet file that are written at a time
MOST_VALUES = 2**22  # of such a group


def write(path: Path, rows: Rows, shape: tuple[int, ...], facts: Facts) -> int:
  """Writes features; the file is there as a whole, or not at all.

  *.npz holds "features" (N, *shape) and "names" (N,), and `facts` by name. *.parquet has a row for
  each image, "path" and "features", a list; its metadata has `facts` and the shape as JSON.

  Args:
    path: the file; its suffix is one of `WRITERS`.
    rows: the images, which are read as they are written.
    shape: of the features of one image.
    facts: what else readers should know.

  Returns:
    The number of images.

  Raises:
    OSError: it cannot be written.
  """
  with files.atomic_write(path) as partial:
    return WRITERS[path.suffix](partial, rows, shape, facts)


def write_npz(place: str, rows: Rows, shape: tuple[int, ...], facts: Facts) -> int:
  """Writes a file of NumPy; the features pass through a temporary file, since N comes last."""
  names = []
  folder = os.path.dirname(place)  # that of temporary files may be small
  with tempfile.TemporaryFile(dir=folder) as raw, zipfile.ZipFile(place, "w") as archive:
    for name, array in rows:
      names.append(files.as_written(name))
      raw.write(np.ascontiguousarray(array, "<f4"))
    raw.seek(0)
    header = {"descr": "<f4", "fortran_order": False, "shape": (len(names), *shape)}
    with archive.open("features.npy", "w", force_zip64=True) as entry:
      npy.write_array_header_1_0(entry, header)
      shutil.copyfileobj(raw, entry, 2**20)
    texts = {"names": np.array(names, str)} | {key: np.array(fact) for key, fact in facts.items()}
    for key, array in texts.items():
      with archive.open(f"{key}.npy", "w") as entry:
        npy.write_array(entry, array)
  return len(names)


def write_parquet(place: str, rows: Rows, shape: tuple[int, ...], facts: Facts) -> int:
  """Writes a file of Parquet, a group of rows at a time."""
  import pyarrow as pa  # slow to import
  import pyarrow.parquet as pq

  values = int(np.prod(shape))
  kind = pa.list_(pa.float32(), values)
  about = {key: str(fact) for key, fact in facts.items()} | {"shape": json.dumps(shape)}
  schema = pa.schema([("path", pa.string()), ("features", kind)], metadata=about)
  size = max(1, min(GROUP, MOST_VALUES // values))
  count = 0
  with pq.ParquetWriter(place, schema) as writer:
    rows = iter(rows)
    while group := list(itertools.islice(rows, size)):
      names, arrays = zip(*group, strict=True)
      flat = pa.array(np.stack(arrays).astype(np.float32).reshape(-1))
      columns = [
        pa.array([files.as_written(name) for name in names]),
        pa.FixedSizeListArray.from_arrays(flat, values),
      ]
      writer.write_table(pa.table(columns, schema=schema))
      count += len(group)
  return count


WRITERS: dict[str, Callable] = {".npz": write_npz, ".parquet": write_parquet}
