"""Batches of images that are a pure function of (seed, position, host).

The position is the number of images that were taken before.

A host batch is a dict: image (b, S, S, 3) uint8; labels (b,) int32, or (b, classes) uint8 multi-hot
if the source is multi-label; mask (b,) float32, 1 for examples that count. A source without classes
gives batches without labels.

Grain reads ahead. Its elements are parts of a host batch, not single images, because the cost of
passing on one element is not small beside the cost of decoding one image.
"""

import dataclasses
import functools
import itertools
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import grain
import numpy as np

from vit_jax.config import ConfigError, RunError
from vit_jax.data import order, patience
from vit_jax.data.images import BadImage
from vit_jax.data.order import MixedSource
from vit_jax.data.read_ahead import Ahead, Now, Read
from vit_jax.data.sources import Example, Source
from vit_jax.process import at_work

Batch = dict[str, np.ndarray]
Transform = Callable[..., np.ndarray]

_log = logging.getLogger(__name__)
_own = threading.local()
_LARGEST_PART = 64  # largest number of images in a part; one thread decodes a part
_REQUESTS = 4  # examples that are read at once for each decoding thread, if each read waits
_AHEAD = 2  # host batches decoded ahead of the consumer
_ENDLESS = 2**60  # number of parts; more than any run reads


class LabelError(RunError):
  """A label is not a class of the run; the message names the example and the label."""


@dataclasses.dataclass(frozen=True)
class _Share:
  """Which positions of the stream of examples this host reads."""

  batch_size: int
  host: int
  hosts: int
  start: int = 0

  def __post_init__(self):
    if self.batch_size % self.hosts:
      raise ValueError(
        f"A batch of {self.batch_size} examples cannot be shared equally by {self.hosts} hosts;"
        " make batch_size a multiple of the number of hosts."
      )

  @functools.cached_property
  def part(self) -> int:
    """Images in a part: the largest divisor of the host batch up to `_LARGEST_PART`."""
    per_host = self.batch_size // self.hosts
    candidates = range(min(per_host, _LARGEST_PART), 0, -1)
    return next(size for size in candidates if per_host % size == 0)

  @property
  def parts(self) -> int:
    """Number of parts in a host batch."""
    return self.batch_size // self.hosts // self.part

  def positions(self, index: int) -> range:
    """Positions in the stream of examples for part number `index` of this host."""
    step, part = divmod(index, self.parts)
    first = self.start + step * self.batch_size + self.host * self.parts * self.part
    return range(first + part * self.part, first + (part + 1) * self.part)


def train_batches(
  source: Source,
  *,
  transform: Transform,
  seed: int,
  batch_size: int,
  host: int,
  hosts: int,
  start: int,
  threads: int,
  parts: Sequence[MixedSource] = (),
  repeats: int = 1,
) -> "Batches":
  """Endless batches of shuffled, augmented examples, beginning at the position `start`.

  The examples, in the order of `order.stream`, make one stream. Global batch `i` is positions
  [start + i * batch_size, start + (i + 1) * batch_size); each host gets an equal, contiguous share.
  The random draws for an example depend only on the seed and its position.

  Args:
    source: the examples.
    transform: (image, rng=generator) -> (S, S, 3) uint8; it must not keep the generator.
    seed: of the order and all draws, in [0, 2**32).
    batch_size: examples in a batch, over all hosts.
    host, hosts: index of this host, number of hosts.
    start: images that were taken before.
    threads: decoding threads; 0: decode when requested.
    parts: the sources that `source` holds one after the other, if they are mixed by weight.
    repeats: positions in a row that have the same example, each with its own draws.

  Returns:
    Host batches of batch_size / hosts examples; `close()` ends the threads. A broken image, which
    cannot be read or decoded, is logged by name; its row is zeros with mask 0.

  Raises:
    ValueError: hosts does not divide batch_size.
    LabelError: from the iterator: a label is out of range.
  """
  share = _Share(batch_size, host, hosts, start)
  rows = order.stream(parts or [MixedSource(len(source), 1.0)], seed=seed, repeats=repeats)
  item = functools.partial(_train_item, source=source, transform=transform, seed=seed)
  return Batches(share, rows, item, source, count=_ENDLESS, threads=threads)


def first_training(
  source: Source,
  *,
  transform: Transform,
  seed: int,
  parts: Sequence[MixedSource],
  count: int,
  repeats: int = 1,
) -> "list[Item]":
  """The first examples of a run as `train_batches` prepares them, without broken images.

  Arguments as for `train_batches`; `count` is at most the batch size.
  """
  rows = order.stream(parts, seed=seed, repeats=repeats)(range(count))
  item = functools.partial(_train_item, source=source, transform=transform, seed=seed)
  reads = Now(functools.partial(_read, source)).part(0, rows)
  return [example for example in map(item, range(count), rows, reads) if example.counts]


def evaluate_batches(
  source: Source,
  *,
  transform: Transform,
  batch_size: int,
  host: int,
  hosts: int,
  threads: int,
) -> "Batches":
  """Every example once, in order; the same number of batches on every host.

  Arguments as for `train_batches`, but transform(image). The last batches are filled up with zeros
  that have mask 0.

  Raises:
    BadImage: from the iterator: an image is broken; the message names it.
    OSError: from the iterator: an image cannot be read.
    ValueError, LabelError: as for `train_batches`.
  """
  share = _Share(batch_size, host, hosts)
  item = functools.partial(_evaluate_item, source=source, transform=transform)
  steps = -(-len(source) // batch_size)
  return Batches(share, order.unchanged, item, source, count=steps * share.parts, threads=threads)


class Item(NamedTuple):
  """An example that is prepared; `counts` is False for one that is broken or only fills up."""

  image: np.ndarray
  labels: tuple[int, ...]
  name: str
  counts: bool


def _train_item(
  position: int, row: int, read: Read, *, source: Source, transform: Transform, seed: int
) -> Item:
  draw = functools.partial(transform, rng=_generator(seed, position))
  example = Example(b"", () if source.multi_label else (0,), "")
  try:
    example = read()
    return Item(draw(example.image), example.labels, example.name, True)
  except ConfigError:  # such as that a bucket may not be read, which is true of all images
    raise
  except (BadImage, OSError) as error:
    name = example.name or source.name(row)
    _log.warning("Broken image, left out of training: %s: %s", name, error)
    return Item(_blank(draw), example.labels, name, False)


def _generator(seed: int, position: int) -> np.random.Generator:
  """A generator for the draws of one position; the next call in this thread sets it again.

  The generator is counter-based: the seed is its key, and the position the upper half of its
  counter. So the draws of different positions are as independent as those of separately seeded
  generators, without hashing for each image. Making a generator takes ten times as long as setting
  one.
  """
  if getattr(_own, "seed", None) != seed:
    bits = np.random.Philox(key=seed)
    _own.seed, _own.bits, _own.state = seed, bits, bits.state
    _own.generator = np.random.Generator(bits)
  _own.state["state"]["counter"][1] = position
  _own.bits.state = _own.state
  return _own.generator


def _evaluate_item(_: int, row: int, read: Read, *, source: Source, transform: Transform) -> Item:
  if row >= len(source):
    return Item(_blank(transform), () if source.multi_label else (0,), "padding", False)
  example = read()
  try:
    return Item(transform(example.image), example.labels, example.name, True)
  except BadImage as error:
    raise BadImage(f"{example.name}: {error}") from error


def _read(source: Source, row: int) -> Example:
  return patience.read(lambda: source[row], lambda: source.name(row))


def _blank(transform: Transform) -> np.ndarray:
  """Zeros of the shape that the transform returns."""
  return np.zeros_like(transform(np.zeros((1, 1, 3), np.uint8)))


def _load(
  share: _Share,
  rows: Callable[[range], Sequence[int]],
  item: Callable[[int, int, Read], Item],
  source: Source,
  ahead: Ahead | Now,
  index: int,
) -> Batch:
  """Reads and stacks one part of a host batch; `rows` maps positions of the stream to rows."""
  images, labels, mask = None, [], []
  positions = share.positions(index)
  chosen = rows(positions)
  reads = ahead.part(index, chosen)
  for place, (position, row, read) in enumerate(zip(positions, chosen, reads, strict=True)):
    at_work.begin(source.name, row)
    try:
      example = item(position, row, read)
    finally:
      at_work.end()
    _check_labels(example, len(source.class_names))
    if images is None:
      images = np.empty((share.part, *example.image.shape), np.uint8)
    images[place] = example.image  # copied at once, so that the next image can reuse the memory
    labels.append(example.labels)
    mask.append(example.counts)
  batch = {"image": images, "mask": np.array(mask, np.float32)}
  return batch | _as_arrays(labels, source)


def _check_labels(item: Item, classes: int) -> None:
  for label in item.labels if classes else ():
    if not 0 <= label < classes:
      raise LabelError(
        f"{item.name} has label {label}, but the data has {classes} classes, so labels must be in"
        f" 0..{classes - 1}; correct the data."
      )


def _as_arrays(labels: list[tuple[int, ...]], source: Source) -> Batch:
  """The labels of a part as an array; {} if the source has no classes."""
  if not source.class_names:
    return {}
  if not source.multi_label:
    return {"labels": np.array(labels, np.int32)[:, 0]}
  multi_hot = np.zeros((len(labels), len(source.class_names)), np.uint8)
  for row, classes in zip(multi_hot, labels, strict=True):
    row[list(classes)] = 1
  return {"labels": multi_hot}


def _joined(parts: list[Batch]) -> Batch:
  if len(parts) == 1:
    return parts[0]
  return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}


class Batches:
  """Iterates over host batches, made of parts; `close()` ends the threads that read ahead.

  Attributes:
    steps: number of host batches.
  """

  def __init__(
    self,
    share: _Share,
    rows: Callable[[range], Sequence[int]],
    item: Callable[[int, int, Read], Item],
    source: Source,
    *,
    count: int,
    threads: int,
  ):
    """Begins to read the parts 0..count - 1; `rows` and `item` are as for `_load`."""
    self._parts, self.steps = share.parts, count // share.parts
    read = functools.partial(_read, source)
    self._ahead = Now(read)
    self._beyond = functools.partial(_load, share, rows, item, source, Now(read), count)
    if source.distant and threads:
      requests = _REQUESTS * threads
      rows_of = lambda index: rows(share.positions(index))
      further = -(-2 * requests // share.part)
      self._ahead = Ahead(read, rows_of, count=count, parts=further, threads=requests)
    load = functools.partial(_load, share, rows, item, source, self._ahead)
    ahead = max(threads, _AHEAD * share.parts) if threads else 0
    options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=ahead)
    self._read = iter(grain.MapDataset.range(count).map(load).to_iter_dataset(options))

  def __iter__(self) -> Iterator[Batch]:
    return self

  def __next__(self) -> Batch:
    parts = list(itertools.islice(self._read, self._parts))
    if not parts:
      raise StopIteration
    return _joined(parts)

  def blank(self) -> Batch:
    """A host batch of `evaluate_batches` that only fills up."""
    return _joined([self._beyond()] * self._parts)

  def close(self):
    """Ends the threads; no further batches are available."""
    self._ahead.close()
    self._read.close()
