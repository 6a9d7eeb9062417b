"""A cache of decoded training images: a folder of ArrayRecord files with small uint8 images.

`prepare` (tools/cache.py) makes a cache before the run, and `Cached` reads it. If there is enough
memory, the operating system keeps the files there, and reads the disk only once.
"""

import collections
import concurrent.futures
import io
import json
import os
import pathlib
import random
import shutil
import struct
from collections.abc import Callable

import numpy as np

from vit_jax.data import images
from vit_jax.data.records import Records, Span
from vit_jax.data.sources import Example, Source, SourceError
from vit_jax.storage import files
from vit_jax.storage.files import create, write_whole
from vit_jax.storage.paths import local_path

_FORMAT = 1  # version of the record format
_FILE = 1024  # images in a file; a preparation that is stopped loses at most one file per thread
_MAX_BYTES = 2**20  # of cache.json
_SAMPLE = 64  # images used to estimate the size
# Height, width, number of labels, bytes of the name. Height 0 means a broken image: width 0 an
# encoded file, and width 1 an array as .npy.
_HEAD = struct.Struct("<4I")
_LABELS = np.dtype("<i8")


class Cached:
  """The examples of a source, with images from a cache: uint8 RGB pixels, reduced by `shrink`.

  The cache holds the original file, or array, of an image that cannot be used, so that the run
  reports it and leaves it out exactly as without a cache.

  Args:
    source: the source from which the cache was made; only its classes, names and identity are used.
    directory: the folder of the cache.
    side, max_pixels: as for `prepare`.

  Raises:
    SourceError: the cache does not exist, is incomplete, or was made from other images.
  """

  def __init__(self, source: Source, directory: str, *, side: int, max_pixels: int):
    root = _root(directory)
    expected = _description(source, side=side, max_pixels=max_pixels)
    if not os.path.exists(root / "cache.json"):
      raise SourceError(
        f'There is no cache in "{root}" (config.data.cache); make it with `python tools/cache.py`'
        " and the flags of this run."
      )
    _compare(root, expected)
    missing = _missing(root, len(source))
    if missing:
      raise SourceError(
        f'The cache in "{root}" lacks {len(missing)} of its {len(_parts(root, len(source)))} files;'
        " finish it with `python tools/cache.py` and the flags of this run."
      )
    self.class_names, self.multi_label = source.class_names, source.multi_label
    self.identity, self._source = source.identity, source
    self._records = Records(
      _parts(root, len(source)),
      remedy="delete it and run tools/cache.py, which makes the missing files",
    )

  def __len__(self) -> int:
    return len(self._records)

  def __getitem__(self, index: int) -> Example:
    return decode(self._records[index])

  def labels(self, index: int) -> tuple[int, ...]:
    """The labels of the example."""
    return self[index].labels

  def name(self, index: int) -> str:
    """The name of the example."""
    return self._source.name(index)


def prepare(
  source: Source,
  directory: str,
  *,
  side: int,
  max_pixels: int,
  threads: int,
  started: Callable[[int, int, int], None],
  done: Callable[[int], None],
) -> None:
  """Makes the missing files of a cache. Several processes and hosts may work together.

  Each file gets its name when it is complete. Every process makes the missing files in its own
  random order; two processes that make the same file write the same bytes.

  Args:
    source: the training examples.
    directory: the folder of the cache.
    side: pixels of the smaller side of an image; smaller images are kept as they are.
    max_pixels: larger images count as broken.
    threads: files made at a time.
    started: started(images, bytes, free): the images to be made, an estimate of their size, and the
      free space on the disk; called once, before any file of images is written.
    done: done(images) after each file.

  Raises:
    SourceError: the folder holds a cache of other images, or the disk is too small.
    OSError: an image cannot be read, or the disk cannot be written.
  """
  root = _claimed(directory, _description(source, side=side, max_pixels=max_pixels))
  missing = _missing(root, len(source))
  count = sum(part.count for part in missing.values())
  size = count and count * _bytes_each(source, side=side, max_pixels=max_pixels)
  started(count, size, _checked_space(root, count=count, size=size))

  def make(first: int) -> int:
    part = missing[first]
    if not os.path.exists(part.path):  # another process may have made it
      fill = lambda path: _fill(path, source, first, part.count, side=side, max_pixels=max_pixels)
      write_whole(part.path, fill)
    return part.count

  order = random.sample(sorted(missing), len(missing))
  with concurrent.futures.ThreadPoolExecutor(threads) as pool:
    collections.deque(map(done, pool.map(make, order)), maxlen=0)
  for leftover in root.glob("*.partial"):  # of processes that were killed
    leftover.unlink(missing_ok=True)


def _claimed(directory: str, description: dict) -> pathlib.Path:
  """The folder; if it is new, makes it and writes the description of the cache."""
  root = _root(directory)
  root.mkdir(parents=True, exist_ok=True)
  names = os.listdir(root)
  if "cache.json" not in names:
    if any(not name.endswith(".partial") for name in names):
      raise SourceError(
        f'"{root}" (config.data.cache) has files but is not a cache; give an empty or new folder.'
      )
    create(root / "cache.json", json.dumps(description, indent=2))
  _compare(root, description)  # another process may have been first
  return root


def _checked_space(root: pathlib.Path, *, count: int, size: int) -> int:
  """Free bytes on the disk, after checking that they are enough for `size`."""
  free = shutil.disk_usage(root).free
  if size > free:
    raise SourceError(
      f'{count:,} images take about {size / 1e6:,.0f} MB, but "{root}" (config.data.cache) has'
      f" {free / 1e6:,.0f} MB free; give a larger disk or a smaller config.data.cache_side."
    )
  return free


def encode(example: Example, *, side: int, max_pixels: int) -> bytes:
  """The record of an example: `_HEAD`, the labels, the name, and the pixels or the broken image."""
  try:
    pixels = images.shrink(example.image, side=side, max_pixels=max_pixels)
    height, width, body = *pixels.shape[:2], pixels.tobytes()
  except images.BadImage:
    array = isinstance(example.image, np.ndarray)
    height, width, body = 0, int(array), _npy(example.image) if array else example.image
  name = example.name.encode(errors="surrogateescape")
  head = _HEAD.pack(height, width, len(example.labels), len(name))
  return head + np.array(example.labels, _LABELS).tobytes() + name + body


def _npy(array: np.ndarray) -> bytes:
  stream = io.BytesIO()
  np.save(stream, array, allow_pickle=False)
  return stream.getvalue()


def decode(record: bytes) -> Example:
  """The example of a record; the pixels, (H, W, 3) uint8, are a view of the record."""
  height, width, count, length = _HEAD.unpack_from(record)
  labels = np.frombuffer(record, _LABELS, count, _HEAD.size)
  at = _HEAD.size + labels.nbytes
  name = record[at : at + length].decode(errors="surrogateescape")
  at += length
  image = record[at:]
  if height:
    image = np.frombuffer(record, np.uint8, height * width * 3, at).reshape(height, width, 3)
  elif width:
    image = np.load(io.BytesIO(image), allow_pickle=False)
  return Example(image, tuple(labels.tolist()), name)


def _description(source: Source, *, side: int, max_pixels: int) -> dict:
  """The description of a cache: everything on which its records depend."""
  return {
    "format": _FORMAT,
    "source": source.identity,
    "images": len(source),
    "cache_side": side,
    "max_pixels": max_pixels,
  }


def _compare(root: pathlib.Path, expected: dict) -> None:
  try:
    found = files.read_json(root / "cache.json", most=_MAX_BYTES)
  except OSError as error:
    raise SourceError(f"The cache of config.data.cache cannot be read: {error}.") from error
  except ValueError as error:
    raise SourceError(
      f'"{root / "cache.json"}" is damaged ({error}); delete the folder and make the cache again'
      " with `python tools/cache.py`."
    ) from error
  for key, value in expected.items():
    if found.get(key) != value:
      raise SourceError(
        f'The cache in "{root}" (config.data.cache) is of other images: its {key} is'
        f" {found.get(key)!r}, this run's {value!r}; give another folder, or delete this one."
      )


def _root(directory: str) -> pathlib.Path:
  return local_path(directory).absolute()


def _parts(root: pathlib.Path, count: int) -> list[Span]:
  """The files of a cache of `count` images."""
  files = -(-count // _FILE)
  return [
    Span(str(root / f"images-{i:06}-of-{files:06}.array_record"), 0, min(_FILE, count - i * _FILE))
    for i in range(files)
  ]


def _missing(root: pathlib.Path, count: int) -> dict[int, Span]:
  """The missing files, by the position of their first image."""
  there = set(os.listdir(root))
  parts = enumerate(_parts(root, count))
  return {i * _FILE: part for i, part in parts if os.path.basename(part.path) not in there}


def _bytes_each(source: Source, *, side: int, max_pixels: int) -> int:
  """Mean size of a record, from a sample."""
  sample = range(0, len(source), max(1, len(source) // _SAMPLE))
  sizes = [len(encode(source[i], side=side, max_pixels=max_pixels)) for i in sample]
  return round(sum(sizes) / len(sizes))


def _fill(path: str, source: Source, first: int, count: int, *, side: int, max_pixels: int) -> None:
  # Imported late, because it is slow, and runs without a cache do not need it.
  from array_record.python import array_record_module

  # Fast compression hardly reduces pixels. Uncompressed files have Riegeli's checksums too.
  writer = array_record_module.ArrayRecordWriter(path, "group_size:1,uncompressed")
  for index in range(first, first + count):
    writer.write(encode(source[index], side=side, max_pixels=max_pixels))
  writer.close()
