"""Batches of images that are a pure function of (seed, step, host).

A host batch is a dict: image (b, S, S, 3) uint8; labels (b,) int32, or (b, classes) uint8 multi-hot
if the source is multi-label; mask (b,) float32, 1 for examples that count. With num_classes=0 there
are no labels.

Grain reads ahead. Its elements are parts of a host batch, not single images, because the cost of
passing on one element is not small beside the cost of decoding one image.
"""

import functools
import itertools
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import grain
import numpy as np

from vit_jax.config import RunError
from vit_jax.data import mixing, order
from vit_jax.data.images import BadImage
from vit_jax.data.mixing import MixedSource
from vit_jax.data.sources import Example, Source
from vit_jax.data.workers import Workers
from vit_jax.process import at_work

Batch = dict[str, np.ndarray]
Transform = Callable[..., np.ndarray]
Rows = Callable[[range], Sequence[int]]  # positions in the stream of examples to rows of the source

_log = logging.getLogger(__name__)
_own = threading.local()
_LARGEST_PART = 64  # largest number of images in a part; one thread decodes a part
_AHEAD = 2  # host batches decoded ahead of the consumer
_ENDLESS = 2**60  # number of parts; more than any run reads


class LabelError(RunError):
  """A label is not a class of the run; the message names the example and the label."""


class _Share(NamedTuple):
  """Which positions of the stream of examples this host reads."""

  batch_size: int
  host: int
  hosts: int
  start: int = 0

  @property
  def per_host(self) -> int:
    return self.batch_size // self.hosts

  @property
  def part(self) -> int:
    """Images in a part: the largest divisor of the host batch up to `_LARGEST_PART`."""
    candidates = range(min(self.per_host, _LARGEST_PART), 0, -1)
    return next(size for size in candidates if self.per_host % size == 0)

  @property
  def parts(self) -> int:
    """Number of parts in a host batch."""
    return self.per_host // self.part

  def positions(self, index: int) -> range:
    """Positions in the stream of examples for part number `index` of this host."""
    step, part = divmod(index, self.parts)
    first = self.start + step * self.batch_size + self.host * self.per_host
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
  num_classes: int,
  threads: int,
  workers: int,
  parts: Sequence[MixedSource] = (),
) -> "Batches":
  """Endless batches of shuffled, augmented examples, beginning at the position `start`.

  The examples, in the order of `mixing.epochs`, make one stream. Global batch `i` is positions
  [start + i * batch_size, start + (i + 1) * batch_size); each host gets an equal, contiguous share.
  The random draws for an example depend only on the seed and its position.

  Args:
    source: the examples.
    transform: (image, rng=generator) -> (S, S, 3) uint8; it must not keep the generator.
    seed: of the order and all draws, in [0, 2**32).
    batch_size: examples in a batch, over all hosts.
    host, hosts: index of this host, number of hosts.
    start: images that were taken before.
    num_classes: labels must be in [0, num_classes); 0: batches have no labels.
    threads: decoding threads of each process (at least 1 in workers); 0: decode when requested.
    workers: decoding processes, which need a picklable source and transform; 0: none.
    parts: the sources that `source` holds one after the other, if they are mixed by weight.

  Returns:
    Host batches of batch_size / hosts examples; `close()` ends the threads and workers. A broken
    image is logged by name, and is replaced by zeros with mask 0.

  Raises:
    ValueError: hosts does not divide batch_size.
    LabelError, WorkerError: from the iterator: a label is out of range; a worker has ended.
  """
  share = _check(_Share(batch_size, host, hosts, start))
  load = functools.partial(
    _load,
    share=share,
    rows=mixing.epochs(parts or [MixedSource(len(source), 1.0)], seed=seed),
    item=functools.partial(_train_item, source=source, transform=transform, seed=seed),
    name=source.name,
    num_classes=num_classes,
    multi_label=source.multi_label,
  )
  return _batches(load, _ENDLESS, share=share, threads=threads, workers=workers)


def first_training(
  source: Source,
  *,
  transform: Transform,
  seed: int,
  parts: Sequence[MixedSource],
  count: int,
) -> "list[Item]":
  """The first examples of a run as `train_batches` prepares them, without broken images.

  Arguments as for `train_batches`; `count` is at most the batch size.
  """
  rows = mixing.epochs(parts, seed=seed)(range(count))
  item = functools.partial(_train_item, source=source, transform=transform, seed=seed)
  return [one for position, row in enumerate(rows) if (one := item(position, row)).counts]


def evaluate_batches(
  source: Source,
  *,
  transform: Transform,
  batch_size: int,
  host: int,
  hosts: int,
  num_classes: int,
  threads: int,
  workers: int,
) -> "Batches":
  """Every example once, in order; the same number of batches on every host.

  Arguments as for `train_batches`, but transform(image). The last batches are filled up with zeros
  that have mask 0.

  Raises:
    BadImage: from the iterator: an image is broken; the message names it.
    OSError: from the iterator: an image cannot be read.
    ValueError, LabelError, WorkerError: as for `train_batches`.
  """
  share = _check(_Share(batch_size, host, hosts))
  steps = -(-len(source) // batch_size)
  load = functools.partial(
    _load,
    share=share,
    rows=order.unchanged,
    item=functools.partial(_evaluate_item, source=source, transform=transform),
    name=source.name,
    num_classes=num_classes,
    multi_label=source.multi_label,
  )
  return _batches(load, steps * share.parts, share=share, threads=threads, workers=workers)


class Item(NamedTuple):
  """An example that is prepared; `counts` is False for one that is broken or only fills up."""

  image: np.ndarray
  labels: tuple[int, ...]
  name: str
  counts: bool


def _train_item(
  position: int, row: int, *, source: Source, transform: Transform, seed: int
) -> Item:
  draw = functools.partial(transform, rng=_generator(seed, position))
  example = Example(b"", () if source.multi_label else (0,), f"position {position}")
  try:
    example = source[row]
    return Item(draw(example.image), example.labels, example.name, True)
  except (BadImage, OSError) as error:
    _log.warning("Left out of training: %s: %s", example.name, error)
    return Item(_blank(draw), example.labels, example.name, False)


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


def _evaluate_item(_: int, row: int, *, source: Source, transform: Transform) -> Item:
  if row >= len(source):
    return Item(_blank(transform), () if source.multi_label else (0,), "padding", False)
  example = source[row]
  try:
    return Item(transform(example.image), example.labels, example.name, True)
  except BadImage as error:
    raise BadImage(f"{example.name}: {error}") from error


def _blank(transform: Transform) -> np.ndarray:
  """Zeros of the shape that the transform returns."""
  return np.zeros_like(transform(np.zeros((1, 1, 3), np.uint8)))


def _load(
  index: int,
  *,
  share: _Share,
  rows: Rows,
  item: Callable[[int, int], Item],
  name: Callable[[int], str],
  num_classes: int,
  multi_label: bool,
) -> Batch:
  """Reads and stacks one part of a host batch."""
  images, labels, mask = None, [], []
  positions = share.positions(index)
  for place, (position, row) in enumerate(zip(positions, rows(positions), strict=True)):
    at_work.begin(name, row)
    try:
      one = item(position, row)
    finally:
      at_work.end()
    if num_classes:
      _check_labels(one, num_classes=num_classes)
    if images is None:
      images = np.empty((share.part, *one.image.shape), np.uint8)
    images[place] = one.image  # copied at once, so that the next image can reuse the memory
    labels.append(one.labels)
    mask.append(one.counts)
  batch = {"image": images, "mask": np.array(mask, np.float32)}
  if num_classes and multi_label:
    batch["labels"] = _multi_hot(labels, num_classes)
  elif num_classes:
    batch["labels"] = np.array(labels, np.int32)[:, 0]
  return batch


def _check_labels(item: Item, *, num_classes: int) -> None:
  for label in item.labels:
    if not 0 <= label < num_classes:
      raise LabelError(
        f"{item.name} has label {label}, but num_classes is {num_classes}, so labels must be in"
        f" 0..{num_classes - 1}; correct the number of classes or the data."
      )


def _multi_hot(labels: list[tuple[int, ...]], num_classes: int) -> np.ndarray:
  out = np.zeros((len(labels), num_classes), np.uint8)
  for row, ones in zip(out, labels, strict=True):
    row[list(ones)] = 1
  return out


class Batches:
  """Iterates over host batches, assembled from parts; `close()` ends threads and workers."""

  def __init__(self, read: Callable[..., Iterator[Batch]], *, parts: int, workers: int):
    """Begins to read; with workers, reading begins when the first batch is requested.

    Args:
      read: read(first, every=) -> every `every`-th part from number `first` on, as `_read`.
      parts: number of parts in a host batch.
      workers: number of processes that read; 0: this process reads.
    """
    self._parts = parts
    self._read = Workers(functools.partial(read, every=workers), workers) if workers else read(0)

  def __iter__(self) -> Iterator[Batch]:
    return self

  def __next__(self) -> Batch:
    parts = list(itertools.islice(self._read, self._parts))
    if not parts:
      raise StopIteration
    return _join(parts)

  def close(self):
    """Ends threads and workers; no further batches are available."""
    self._read.close()


def _batches(
  load: Callable[[int], Batch], count: int, *, share: _Share, threads: int, workers: int
) -> Batches:
  """Host batches of the parts 0..count - 1; a worker always decodes ahead."""
  threads = max(threads, 1) if workers else threads
  read = functools.partial(_read, load=load, count=count, share=share, threads=threads)
  return Batches(read, parts=share.parts, workers=workers)


def _read(
  first: int,
  *,
  every: int = 1,
  load: Callable[[int], Batch],
  count: int,
  share: _Share,
  threads: int,
) -> grain.DatasetIterator[Batch]:
  """The parts `first`, `first` + `every`, ... below `count`, read ahead of the consumer.

  With `every` workers, each worker reads its share of the parts ahead.
  """
  ahead = max(threads, -(-_AHEAD * share.parts // every)) if threads else 0
  options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=ahead)
  return iter(grain.MapDataset.range(first, count, every).map(load).to_iter_dataset(options))


def _join(parts: list[Batch]) -> Batch:
  if len(parts) == 1:
    return parts[0]
  return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}


def _check(share: _Share) -> _Share:
  if share.batch_size % share.hosts:
    raise ValueError(
      f"A batch of {share.batch_size} examples cannot be shared equally by {share.hosts} hosts;"
      " make batch_size a multiple of the number of hosts."
    )
  return share
