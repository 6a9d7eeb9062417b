"""Batches of images that are a pure function of (seed, position, host).

The position is the number of images that were taken before.

A host batch is a dict of the arrays that its `Layout` declares, usually image (b, S, S, 3) uint8
and labels, and of mask (b,) float32, 1 for examples that count.

Threads read ahead. Each loads a chunk of a host batch, not a single image, because handing over a
result is not cheap compared with decoding one image.

If each read waits for a network, as many reads must be under way as examples are decoded in that
time: 20 at 2,000 images per second and 10 ms per read. `ReadAhead` gives the reads threads of their
own, because more decoding threads than cores only slow each other down. Its "parts" are chunks.

`DecodedCache` keeps small training images decoded in memory: reading and decoding one takes longer
than a training step of a small model on it.
"""

import collections
import concurrent.futures
import dataclasses
import functools
import itertools
import logging
import os
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from vit_jax.config import ConfigError
from vit_jax.data import images, jpeg, order
from vit_jax.data.images import BadImage
from vit_jax.data.layout import Layout
from vit_jax.data.order import MixedSource
from vit_jax.data.sources import Example, Source
from vit_jax.data.sources.base import Field, SourceView
from vit_jax.devices import watchdog
from vit_jax.storage import base

Read = Callable[[], Example]


class ReadNow:
  """Reads each example when it is needed."""

  def __init__(self, read: Callable[[int], Example]):
    """`read` returns the example of a row."""
    self._read = read

  def part(self, index: int, rows: Sequence[int]) -> list[Read]:
    """Functions that return the examples of a part."""
    del index
    return [lambda row=row: self._read(row) for row in rows]

  def close(self):
    """Does nothing."""


class ReadAhead:
  """Reads the examples of a part, and of some parts after it, as soon as the part is needed.

  Args:
    read: returns the example of a row.
    rows_of: returns the rows of a part.
    count: number of parts.
    parts: how many parts to read ahead.
    threads: number of examples to read at once.
  """

  def __init__(
    self,
    read: Callable[[int], Example],
    rows_of: Callable[[int], Sequence[int]],
    *,
    count: int,
    parts: int,
    threads: int,
  ):
    self._read = read
    self._rows_of = rows_of
    self._count = count
    self._ahead = parts
    self._pool = concurrent.futures.ThreadPoolExecutor(threads, "read_ahead")
    self._begun = {}
    self._next = 0
    self._lock = threading.Lock()

  def part(self, index: int, rows: Sequence[int]) -> list[Read]:
    """Functions that wait for the examples of a part; call it once per part, roughly in order."""
    del rows
    with self._lock:
      while self._next <= min(index + self._ahead, self._count - 1):
        reads = [self._pool.submit(self._read, row) for row in self._rows_of(self._next)]
        self._begun[self._next] = [read.result for read in reads]
        self._next += 1
      return self._begun.pop(index)

  def close(self):
    """Stops further reads."""
    self._pool.shutdown(wait=False, cancel_futures=True)


_MOST_BYTES = 2**28  # of all kept pixels in a process; images beyond that are read again
_MOST_PIXELS = 2**14  # of an image, 128 x 128; few larger ones would fit


class DecodedCache(SourceView):
  """The examples of a source; small images are decoded once, to the same pixels as by `images`.

  JPEG files are not kept, because only the rows and the resolution that a crop needs are decoded,
  which gives other pixels. Broken files are not kept either, so that each use is reported.

  Args:
    source: the examples.
    needed: names of the fields to keep with an image; all others are dropped.
    channels: of the images, as the model takes them.
  """

  def __init__(self, source: Source, needed: Iterable[str] = (), channels: int = images.RGB):
    super().__init__(source)
    self._channels = channels
    self.fields = {name: source.fields[name] for name in needed}
    self._examples: dict[int, Example] = {}
    self._bytes = 0  # a race of threads may lose some, which does not matter

  def __getitem__(self, index: int) -> Example:
    if kept := self._examples.get(index):
      return kept
    example = self._source[index]
    if self._bytes >= _MOST_BYTES:
      return example
    return self._keep(index, example)

  def _keep(self, index: int, example: Example) -> Example:
    if isinstance(example.image, bytes) and jpeg.is_jpeg(example.image):
      return example
    try:
      pixels = images.as_channels(example.image, self._channels, max_pixels=_MOST_PIXELS).view()
    except images.BadImage:  # too large, or broken
      return example
    pixels.flags.writeable = False  # an augmentation that wrote to it would change later epochs
    fields = {name: x for name, x in example.fields.items() if name in self.fields}
    self._bytes += pixels.nbytes + sum(np.asarray(x).nbytes for x in fields.values())
    self._examples[index] = example._replace(image=pixels, fields=fields)
    return self._examples[index]


Batch = dict[str, np.ndarray]

_log = logging.getLogger(__name__)
_own = threading.local()
THREADS = "decode"  # how names of threads that read and decode begin
_LARGEST_CHUNK = 64  # largest number of images in a chunk; one thread decodes a chunk
_REQUESTS = 4  # examples read at once per decoding thread, if reads wait for a network
_PER_CORE = 2  # decoding threads per core, if other threads read
_AHEAD = 2  # host batches decoded ahead of the consumer
_ENDLESS = 2**60  # number of chunks; more than any run reads


@dataclasses.dataclass(frozen=True)
class _Share:
  """The positions in the stream of examples that this host reads."""

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
  def chunk_size(self) -> int:
    """Images in a chunk: the largest divisor of the host batch up to `_LARGEST_CHUNK`."""
    per_host = self.batch_size // self.hosts
    candidates = range(min(per_host, _LARGEST_CHUNK), 0, -1)
    return next(size for size in candidates if per_host % size == 0)

  @property
  def chunks(self) -> int:
    """Number of chunks in a host batch."""
    return self.batch_size // self.hosts // self.chunk_size

  def positions(self, index: int) -> range:
    """Positions in the stream of examples for chunk number `index` of this host."""
    step, chunk = divmod(index, self.chunks)
    host_batch = self.start + step * self.batch_size + self.host * self.chunks * self.chunk_size
    first = host_batch + chunk * self.chunk_size
    return range(first, first + self.chunk_size)


def train_batches(
  source: Source,
  *,
  layout: Layout,
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
    layout: the arrays of a batch; its crops are random, and must not keep the generator.
    seed: seed of the order and of all draws, in [0, 2**32).
    batch_size: examples in a batch, over all hosts.
    host, hosts: index of this host, number of hosts.
    start: images that were taken before.
    threads: decoding threads; 0: decode when requested.
    parts: the sources that `source` holds one after the other, if they are mixed by weight.
    repeats: positions in a row that have the same example, each with its own draws.

  Returns:
    Host batches of batch_size / hosts examples; `close()` ends the threads. A broken image, which
    cannot be read or decoded, is logged by name; its row is padding with mask 0.

  Raises:
    ValueError: hosts does not divide batch_size.
    FieldError: from the iterator: a label is out of range, or a field differs from its declaration.
  """
  share = _Share(batch_size, host, hosts, start)
  examples_at = order.stream(parts or [MixedSource(len(source), 1.0)], seed=seed, repeats=repeats)
  item = functools.partial(_train_item, source=source, layout=layout, seed=seed)
  return Batches(share, examples_at, item, source, layout, count=_ENDLESS, threads=threads)


def first_training(
  source: Source,
  *,
  layout: Layout,
  seed: int,
  parts: Sequence[MixedSource],
  count: int,
  repeats: int = 1,
) -> "list[Item]":
  """The first examples of a run as `train_batches` prepares them, without broken images.

  Arguments as for `train_batches`; `count` is at most the batch size.
  """
  chosen = order.stream(parts, seed=seed, repeats=repeats)(range(count))
  item = functools.partial(_train_item, source=source, layout=layout, seed=seed)
  reads = ReadNow(functools.partial(_read, source)).part(0, chosen)
  return [example for example in map(item, range(count), chosen, reads) if example.counts]


def evaluate_batches(
  source: Source,
  *,
  layout: Layout,
  batch_size: int,
  host: int,
  hosts: int,
  threads: int,
) -> "Batches":
  """Every example once, in order; the same number of batches on every host.

  Arguments as for `train_batches`, but nothing is drawn for the crops of `layout`. The last batches
  are filled up with padding that has mask 0.

  Raises:
    BadImage: from the iterator: an image is broken; the message names it.
    OSError: from the iterator: an image cannot be read.
    ValueError, FieldError: as for `train_batches`.
  """
  share = _Share(batch_size, host, hosts)
  item = functools.partial(_evaluate_item, source=source, layout=layout)
  count = -(-len(source) // batch_size) * share.chunks
  return Batches(share, order.unchanged, item, source, layout, count=count, threads=threads)


class Item(NamedTuple):
  """A prepared example; `counts` is False if it is broken or padding."""

  row: Mapping[str, np.ndarray]
  labels: tuple[int, ...]
  counts: bool


def _train_item(
  position: int, row: int, read: Read, *, source: Source, layout: Layout, seed: int
) -> Item:
  name = ""
  try:
    example = read()
    name = example.name
    return Item(layout.row(example, rng=_generator(seed, position)), example.labels, True)
  except ConfigError:  # such as no permission to read a bucket, which concerns all images
    raise
  except (BadImage, OSError) as error:
    name = name or source.name(row)
    _log.warning("Broken image, left out of training: %s: %s", name, error)
    return Item(layout.padding, (), False)


def _generator(seed: int, position: int) -> np.random.Generator:
  """A generator for the draws of one position; the next call in this thread resets it.

  The generator is counter-based: the seed is its key, and the position the second of the four
  words of its counter. So the draws of different positions are as independent as those of
  separately seeded generators, without hashing for each image. Making a generator takes ten times
  as long as resetting one.
  """
  if getattr(_own, "seed", None) != seed:
    bits = np.random.Philox(key=seed)
    _own.seed = seed
    _own.bits = bits
    _own.state = bits.state
    _own.generator = np.random.Generator(bits)
  _own.state["state"]["counter"][1] = position
  _own.bits.state = _own.state
  return _own.generator


def _evaluate_item(_: int, row: int, read: Read, *, source: Source, layout: Layout) -> Item:
  if row >= len(source):
    return Item(layout.padding, (), False)
  example = read()
  try:
    return Item(layout.row(example), example.labels, True)
  except BadImage as error:
    raise BadImage(f"{example.name}: {error}") from error


def _read(source: Source, row: int) -> Example:
  return base.retried(lambda: source[row], lambda: source.name(row))


def _load(
  share: _Share,
  examples_at: Callable[[range], Sequence[int]],
  item: Callable[[int, int, Read], Item],
  source: Source,
  layout: Layout,
  ahead: ReadAhead | ReadNow,
  index: int,
) -> Batch:
  """Reads and stacks one chunk of a host batch; `examples_at` maps positions to rows."""
  fields = {**layout.fields, "mask": Field()}
  batch = {name: np.empty((share.chunk_size, *x.shape), x.dtype) for name, x in fields.items()}
  positions = share.positions(index)
  chosen = examples_at(positions)
  reads = ahead.part(index, chosen)
  for place, (position, row, read) in enumerate(zip(positions, chosen, reads, strict=True)):
    watchdog.begin_image(source.name, row)
    try:
      example = item(position, row, read)
    finally:
      watchdog.end_image()
    for name, value in example.row.items():
      batch[name][place] = value
    batch["mask"][place] = example.counts
  return batch


def _cores() -> int:
  """The number of cores that this process may use; where it is unknown, of all cores."""
  if hasattr(os, "sched_getaffinity"):
    return len(os.sched_getaffinity(0))
  return os.cpu_count() or 1


def _joined(chunks: list[Batch]) -> Batch:
  if len(chunks) == 1:
    return chunks[0]
  return {key: np.concatenate([chunk[key] for chunk in chunks]) for key in chunks[0]}


def _in_order(
  load: Callable[[int], Batch], count: int, threads: int, buffered: int
) -> Generator[Batch]:
  """Chunks 0..count - 1; with threads, `buffered` more than the next are loaded ahead."""
  if not threads:
    yield from map(load, range(count))
    return
  pool = concurrent.futures.ThreadPoolExecutor(threads, THREADS)
  begun = (pool.submit(load, index) for index in range(count))
  try:
    waiting = collections.deque(itertools.islice(begun, buffered))
    while waiting:
      first = waiting.popleft()
      waiting.extend(itertools.islice(begun, 1))
      yield first.result()
  finally:
    pool.shutdown(wait=False, cancel_futures=True)


class Batches:
  """Iterates over host batches, made of chunks; `close()` ends the threads that read ahead.

  Attributes:
    steps: number of host batches.
    images: examples of the source.
  """

  def __init__(
    self,
    share: _Share,
    examples_at: Callable[[range], Sequence[int]],
    item: Callable[[int, int, Read], Item],
    source: Source,
    layout: Layout,
    *,
    count: int,
    threads: int,
  ):
    """Begins to read the chunks 0..count - 1; the other arguments are as for `_load`."""
    self._chunks = share.chunks
    self.steps = count // share.chunks
    self.images = len(source)
    read = functools.partial(_read, source)
    self._ahead = ReadNow(read)
    load_with = functools.partial(_load, share, examples_at, item, source, layout)
    self._load_padding = functools.partial(load_with, ReadNow(read), count)
    if source.distant and threads:
      requests = _REQUESTS * threads
      # Other threads read; more decoding threads would only compete for the cores.
      threads = min(threads, _PER_CORE * _cores())
      further = -(-2 * requests // share.chunk_size)
      self._ahead = ReadAhead(
        read,
        lambda index: examples_at(share.positions(index)),
        count=count,
        parts=further,
        threads=requests,
      )
    load = functools.partial(load_with, self._ahead)
    buffered = 0
    if threads:
      buffered = max(threads, _AHEAD * share.chunks)
    self._read = _in_order(load, count, threads, buffered)

  def __iter__(self) -> Iterator[Batch]:
    return self

  def __next__(self) -> Batch:
    chunks = list(itertools.islice(self._read, self._chunks))
    if not chunks:
      raise StopIteration
    return _joined(chunks)

  def blank(self) -> Batch:
    """A host batch of `evaluate_batches` that is only padding."""
    return _joined([self._load_padding()] * self._chunks)

  def close(self):
    """Ends the threads; no further batches are available."""
    self._ahead.close()
    self._read.close()
