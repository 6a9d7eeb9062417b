"""A cache of decoded training images: a folder of ArrayRecord files with small uint8 images.

`prepare` (vit-jax cache) makes a cache before the run, and `Cached` reads it. If memory suffices,
the operating system caches the files, so that the disk is read only once.
"""

import collections
import concurrent.futures
import dataclasses
import functools
import io
import json
import os
import pathlib
import random
import shutil
import struct
from collections.abc import Callable

import numpy as np

from vit_jax.config import ConfigError, Data, sides
from vit_jax.data import identity, images, records
from vit_jax.data.sources import Example, Source, SourceError
from vit_jax.data.sources.base import SourceView
from vit_jax.process.text import listed, shown
from vit_jax.storage.base import UnreachableError
from vit_jax.storage.files import create, read_json
from vit_jax.storage.paths import local_path
from vit_jax.training import checks
from vit_jax.training.run import TrainingView

_FORMAT = 1  # version of the record format
_FILE = 1024  # images per file; a preparation that is stopped loses at most one file per thread
_MAX_BYTES = 2**20  # limit for cache.json
_SAMPLED = ("sizes", "content")  # of `Identity`: what distinguishes images with the same names
# Height, width, number of labels, bytes of the name. Height 0 means a broken image, stored as an
# encoded file (width 0) or as an array in .npy format (width 1); or one that the source cannot read
# (width 2), of which only the reason is stored.
_HEAD = struct.Struct("<4I")
_UNREADABLE = _HEAD.pack(0, 2, 0, 0)
_LABELS = np.dtype("<i8")


class PreparedCache(TrainingView):
  """Reads the training images from the cache that config.data.cache names."""

  @staticmethod
  def check(config):
    """Refuses a cache of images that are too small, or that lacks what the objective needs.

    Raises:
      ConfigError: names the setting.
    """
    if config.model.channels != images.RGB:
      raise ConfigError(
        f"config.data.cache={shown(config.data.cache)} holds RGB images, and config.model.channels="
        f"{config.model.channels}; leave the cache out."
      )
    for name, view in config.objective.views(config.data).items():
      with checks.blaming_view(config, name, view.data):
        _check_side(view.data)
    if needed := config.objective.fields(config.data):
      raise ConfigError(
        f"config.data.cache={shown(config.data.cache)} holds images and labels alone, and "
        f"config.objective.kind={config.objective.kind} also needs {listed([*needed])}; leave the "
        "cache out."
      )

  @staticmethod
  def view(source, data):
    """The examples with the images of the cache.

    Raises:
      SourceError: the cache is missing, not complete, or of other images.
    """
    return Cached(source, data.cache, side=data.cache_side, max_pixels=data.max_pixels)


def _check_side(data: Data):
  """Refuses a cache with images so small that every crop would enlarge them."""
  resized = data.resized_before()
  least = max(sides(resized or data.image_size))
  if data.cache_side >= least:
    return
  cause = f"image_size={data.image_size}"
  if resized and data.train_resize:
    cause = f"train_resize={data.train_resize}"
  elif resized:
    cause = f"train_resize_ratio={data.train_resize_ratio:g}"
  raise ConfigError(
    f"config.data.cache_side={data.cache_side} is smaller than the {least} pixels of "
    f"config.data.{cause}, so every crop would be enlarged; make it at least {least}, or "
    "config.data.cache empty."
  )


class Cached(SourceView):
  """The examples of a source, with images from a cache: uint8 RGB pixels, reduced by `shrink`.

  The cache holds the original file, or array, of an image that cannot be used, or the reason why
  the source cannot read it, so that the run reports it and leaves it out exactly as without a
  cache. It holds no other fields.

  Args:
    source: the source from which the cache was made; only its classes, names and identity are used.
    directory: the folder of the cache.
    side, max_pixels: as in `prepare`.

  Raises:
    SourceError: the cache does not exist, is incomplete, or was made from other images.
    BadImage: from an item: the source could not read it when the cache was made.
  """

  def __init__(self, source: Source, directory: str, *, side: int, max_pixels: int):
    super().__init__(source)
    self.fields = {}
    cache = _Cache(source, local_path(directory).absolute(), side, max_pixels)
    if not cache.json.exists():
      raise SourceError(
        f'There is no cache in "{cache.root}" (config.data.cache); make it with `vit-jax '
        "cache` and the flags of this run."
      )
    cache.check()
    if missing := cache.missing():
      raise SourceError(
        f'The cache in "{cache.root}" lacks {len(missing)} of its {len(cache.files())} files;'
        " finish it with `vit-jax cache` and the flags of this run."
      )
    remedy = "delete it and run vit-jax cache, which makes the missing files"
    self._records = records.Records(cache.files(), remedy=remedy)

  def __getitem__(self, index: int) -> Example:
    return decode(self._records[index])

  def labels(self, index: int) -> tuple[int, ...]:
    """The labels in the cache."""
    return self[index].labels


def prepare(
  source: Source,
  directory: str,
  *,
  side: int,
  max_pixels: int,
  threads: int,
  started: Callable[[int, int, int], None] = lambda count, size, free: None,
  done: Callable[[int], None] = lambda count: None,
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
  cache = _Cache(source, local_path(directory).absolute(), side, max_pixels)
  cache.root.mkdir(parents=True, exist_ok=True)
  missing = cache.missing()
  count = sum(file.count for file in missing.values())
  # Before the claim: a repaired image of the sample would be another than the claim describes.
  size = count and count * cache.bytes_each()
  cache.claim()
  started(count, size, _checked_space(cache.root, count=count, size=size))

  def make(first: int) -> int:
    file = missing[first]
    if not os.path.exists(file.path):  # another process may have made it
      rows = range(first, first + file.count)
      # Fast compression hardly reduces pixels. Uncompressed files have Riegeli's checksums too.
      records.write(file.path, map(cache.record, rows), compressed=False)
    return file.count

  order = random.sample(sorted(missing), len(missing))
  with concurrent.futures.ThreadPoolExecutor(threads) as pool:
    collections.deque(map(done, pool.map(make, order)), maxlen=0)
  for leftover in cache.root.glob("*.partial"):  # left by killed processes
    leftover.unlink(missing_ok=True)


@dataclasses.dataclass(frozen=True)
class _Cache:
  """The folder of a cache, and what it is made from."""

  source: Source
  root: pathlib.Path
  side: int
  max_pixels: int

  @property
  def json(self) -> pathlib.Path:
    return self.root / "cache.json"

  @functools.cached_property
  def now(self) -> identity.Identity:
    """The identity of the images, as they are now."""
    return identity.of(self.source)

  def description(self) -> dict:
    """Everything on which the records depend."""
    return {
      "format": _FORMAT,
      "source": self.source.identity,
      "images": len(self.source),
      "cache_side": self.side,
      "max_pixels": self.max_pixels,
      **{key: getattr(self.now, key) for key in _SAMPLED},
    }

  def claim(self) -> None:
    """Makes a cache of the folder, if it is empty, and checks that it is one of these images."""
    names = os.listdir(self.root)
    if "cache.json" not in names:
      if any(not name.endswith(".partial") for name in names):
        raise SourceError(
          f'"{self.root}" (config.data.cache) has files but is not a cache; give an empty or new '
          "folder."
        )
      create(self.json, json.dumps(self.description(), indent=2))
    self.check()  # another process may have been first

  def check(self) -> None:
    """Checks that the folder is a cache of these images."""
    try:
      there = read_json(self.json, most=_MAX_BYTES)
    except UnreachableError:
      raise
    except OSError as error:
      raise SourceError(f"The cache of config.data.cache cannot be read: {error}.") from error
    except ValueError as error:
      raise SourceError(
        f'"{self.json}" is damaged ({error}); delete the folder and make the cache again'
        " with `vit-jax cache`."
      ) from error
    if any(there.get(key) is None for key in _SAMPLED):
      raise SourceError(
        f'The cache in "{self.root}" (config.data.cache) was made by an earlier version, which did '
        "not record of which images; delete the folder and make it again with `vit-jax cache`."
      )
    if other := self._other(there):
      raise SourceError(
        f'The cache in "{self.root}" (config.data.cache) is of other images: {other}; give another '
        "folder, or delete this one."
      )

  def _other(self, there: dict) -> str:
    """What is different in the description of a cache; "" if nothing is."""
    for key, value in self.description().items():
      if key not in _SAMPLED and there.get(key) != value:
        return f"its {key} is {there.get(key)!r}, this run's {value!r}"
    before = self.now._replace(**{key: there[key] for key in _SAMPLED})
    return ", ".join(identity.changes(before, self.now))

  def files(self) -> list[records.Span]:
    """The files, each with its number of images."""
    images_left = len(self.source)
    number = -(-images_left // _FILE)  # rounded up
    result = []
    for i in range(number):
      path = self.root / f"images-{i:06}-of-{number:06}.array_record"
      result.append(records.Span(str(path), 0, min(_FILE, images_left)))
      images_left -= _FILE
    return result

  def missing(self) -> dict[int, records.Span]:
    """The missing files, by the position of their first image."""
    present = set(os.listdir(self.root))
    files = enumerate(self.files())
    return {i * _FILE: file for i, file in files if os.path.basename(file.path) not in present}

  def record(self, index: int) -> bytes:
    """The record of an example."""
    try:
      example = self.source[index]
    except images.BadImage as error:
      return _UNREADABLE + str(error).encode(errors="surrogateescape")
    return encode(example, side=self.side, max_pixels=self.max_pixels)

  def bytes_each(self) -> int:
    """Mean size of a record in bytes, from the images that `identity` reads."""
    sample = identity.spread(len(self.source), identity.READ)
    return round(sum(len(self.record(i)) for i in sample) / len(sample))


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
    height, width = pixels.shape[:2]
    body = pixels.tobytes()
  except images.BadImage:
    height = 0
    width = 0
    body = example.image
    if isinstance(example.image, np.ndarray):
      width = 1
      body = _npy(example.image)
  name = example.name.encode(errors="surrogateescape")
  head = _HEAD.pack(height, width, len(example.labels), len(name))
  return head + np.array(example.labels, _LABELS).tobytes() + name + body


def _npy(array: np.ndarray) -> bytes:
  stream = io.BytesIO()
  np.save(stream, array, allow_pickle=False)
  return stream.getvalue()


def decode(record: bytes) -> Example:
  """The example of a record; the pixels, (H, W, 3) uint8, are a view of the record.

  Raises:
    BadImage: the source could not read the example.
  """
  if record.startswith(_UNREADABLE):
    raise images.BadImage(record[_HEAD.size :].decode(errors="surrogateescape"))
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
