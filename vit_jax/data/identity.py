"""Fingerprints of datasets, independent of where they are stored; reads only some of the images."""

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from vit_jax.data.datasets import NamedDataset
from vit_jax.data.jpeg import BadImage
from vit_jax.data.sources import Source
from vit_jax.process.progress import SILENT, NoProgress, Progress
from vit_jax.process.text import listed
from vit_jax.storage import base, files
from vit_jax.storage.base import UnreachableError
from vit_jax.storage.paths import path_of

SIZES = 2**15  # most images whose file sizes are hashed, evenly spaced in the dataset
READ = 256  # most images whose content is hashed
READ_BYTES = 2**25  # about the most bytes of them
AT_ONCE = 16  # images read at once
CHUNK = 256  # sizes that a thread reads in a row
UNREADABLE = b"unreadable"


class Identity(NamedTuple):
  """The fingerprint of a dataset; two with equal fields most likely hold the same images.

  Attributes:
    images: the number of images.
    classes: the number of classes, and the names of the first ones.
    names: a hash of all names and labels in order, as `Source.identity`, and of the class names.
    sizes: a hash of file sizes; "": they cannot be read now, and are not compared.
    content: a hash of the content of some images; "": as for sizes.
  """

  images: int
  classes: str
  names: str
  sizes: str
  content: str


def of(source: Source, key: str = "", progress: Progress | NoProgress = SILENT) -> Identity:
  """The identity of a source.

  Reads at most `READ` images and the sizes of `SIZES` files, in threads.

  Args:
    source: the images.
    key: the name of its setting, for the progress.
    progress: shows how far the reading is.
  """
  class_names = list(source.class_names)
  classes = "none"
  if class_names:
    classes = f"{len(class_names)} ({listed(class_names, 10)})"
  named = ascii((source.identity, class_names, source.multi_label))
  digest = hashlib.sha256(named.encode()).hexdigest()[:16]
  with ThreadPoolExecutor(AT_ONCE) as pool:
    count = progress.images(f"file sizes of {key}", min(len(source), SIZES))
    sizes = _sizes(source, pool, count.done)
    count = progress.images(f"a sample of {key}", min(len(source), READ))
    return Identity(len(source), classes, digest, sizes, _content(source, pool, count.done))


def of_all(
  datasets: Iterable[NamedDataset], progress: Progress | NoProgress = SILENT
) -> dict[str, Identity]:
  """The identity of each dataset, by the name of its setting."""
  return {named.key: of(named.source, named.key, progress) for named in datasets}


def read_identities(values: Any) -> dict[str, Identity]:
  """The identities of datasets by the names of their settings, from JSON.

  Raises:
    ValueError: the values are no identities.
  """
  try:
    return {str(key): Identity(**value) for key, value in dict(values or {}).items()}
  except TypeError as error:
    raise ValueError(f"its data are not described as they should be ({error})") from error


def changes(before: Identity, now: Identity) -> list[str]:
  """How the images of a dataset have changed, in words; [] if they have not."""
  said = []
  if before.images != now.images:
    said.append(f"{before.images:,} -> {now.images:,} images")
  if before.classes != now.classes:
    said.append(f"classes {before.classes} -> {now.classes}")
  if before.names != now.names and not said:
    said.append("other names, labels or files, or in another order")
  if before.sizes and now.sizes and before.sizes != now.sizes and not said:
    said.append("files of other sizes")
  if before.content and now.content and before.content != now.content and not said:
    said.append("images with other content under the same names")
  return said


def all_changes(before: Mapping[str, Identity], now: Mapping[str, Identity]) -> dict[str, str]:
  """`changes` of the datasets that both have, by the names of their settings."""
  both = {key: changes(before[key], now[key]) for key in before.keys() & now.keys()}
  return {key: ", ".join(said) for key, said in sorted(both.items()) if said}


def _sum(pieces: Iterable[bytes]) -> str:
  digest = hashlib.sha256()
  for piece in pieces:
    digest.update(len(piece).to_bytes(8, "little") + piece)
  return digest.hexdigest()[:16]


def spread(count: int, most: int) -> list[int]:
  """At most `most` of the numbers below `count`, evenly spaced."""
  return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64)).tolist()


def _sizes(source: Source, pool: ThreadPoolExecutor, done: Callable[[int], None]) -> str:
  """A hash of file sizes; "" if one cannot be read now, but perhaps later."""
  try:
    return _sum(str(size).encode() for size in _each_size(source, pool, done))
  except OSError:
    return ""


def _each_size(
  source: Source, pool: ThreadPoolExecutor, done: Callable[[int], None]
) -> Iterator[int]:
  """The sizes of the image files, or of the files that hold several images each."""

  def size(index):
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
      return source.size(index)
    return -1

  rows = spread(len(source), SIZES)
  if any(map(size, rows[:CHUNK])):  # the first files may be empty
    chunks = [rows[begin : begin + CHUNK] for begin in range(0, len(rows), CHUNK)]
    for sizes in pool.map(lambda some: [*map(size, some)], chunks):
      yield from sizes
      done(len(sizes))
    return
  places = (place for block in source.blocks() for place in block.place.split("\n"))
  for place in dict.fromkeys(places):
    path = path_of(place)
    if path.is_absolute() and files.is_file(path):
      yield files.stamp(path).size


def _content(source: Source, pool: ThreadPoolExecutor, done: Callable[[int], None]) -> str:
  """A hash of the content of some images; "" if one cannot be read now, but perhaps later."""
  rows = spread(len(source), READ)
  rows = [rows[i] for i in np.random.default_rng(0).permutation(len(rows))]
  contents = []
  read_bytes = 0
  for begin in range(0, len(rows), AT_ONCE):
    try:
      some = list(pool.map(lambda row: _image(source, row), rows[begin : begin + AT_ONCE]))
    except OSError:
      return ""
    contents += some
    done(len(some))
    read_bytes += sum(map(len, some))
    if read_bytes > READ_BYTES:
      break
  return _sum(contents)


def _image(source: Source, row: int) -> bytes:
  """The content of an image; UNREADABLE if it will stay unreadable."""
  try:
    image = base.retried(lambda: source[row].image, lambda: source.name(row))
  except OSError as error:
    if isinstance(error, UnreachableError) or error.errno in base.MAY_PASS:
      raise
    return UNREADABLE
  except BadImage:
    return UNREADABLE
  if isinstance(image, bytes):
    return image
  return f"{image.shape}".encode() + np.ascontiguousarray(image).tobytes()
