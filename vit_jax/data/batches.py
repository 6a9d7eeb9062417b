"""Makes batches from opened sources, and puts them on the devices ahead of the step.

config.data says how images are prepared. On the devices they are global, sharded arrays.
"""

import collections
import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from vit_jax.config import ConfigError, Data, ObjectiveSettings, RunError, Size
from vit_jax.data import crops, images, pipeline
from vit_jax.data.images import BadImage
from vit_jax.data.layout import Crop, Layout
from vit_jax.data.order import MixedSource
from vit_jax.data.pipeline import Batch, Batches
from vit_jax.data.sources import Source
from vit_jax.data.sources.base import Field
from vit_jax.devices import mesh as meshes

DEVICE_ROWS = 8  # rows that vector units process at once


@dataclasses.dataclass(frozen=True)
class Reader:
  """Reads this host's share of every batch, and puts it on the devices.

  Attributes:
    settings: how images are prepared and read.
    mesh: the devices.
    batch_size: images in a training step, over all hosts.
    accumulation: number of microbatches of a step; an evaluation batch has the size of one, or
      less for small sets, as `evaluation_size`.
    objective: decides what a training batch holds.
    channels: of the images, as the model takes them.
    scored: the number of images of each set that is evaluated.
  """

  settings: Data
  mesh: Mesh
  batch_size: int
  accumulation: int
  objective: ObjectiveSettings = ObjectiveSettings()
  channels: int = images.RGB
  scored: tuple[int, ...] = ()

  def layout(self, source: Source) -> Layout:
    """The layout of a training batch of these examples."""
    views = self.objective.views(self.settings)
    crops = {}
    for name, view in views.items():
      transform = train_transform(view.data, self.channels)
      crops[name] = Crop(transform, view.data.image_size, view.count, self.channels)
    fields = self.objective.fields(self.settings)
    squares = sum(view.count or 1 for view in views.values())
    if squares <= 1:
      return Layout.of(source, crops, fields)
    decode = functools.partial(
      images.as_channels, channels=self.channels, max_pixels=self.settings.max_pixels
    )
    return Layout.of(source, crops, fields, decode)

  def training(
    self, source: Source, *, parts: Sequence[MixedSource], seed: int, start: int
  ) -> pipeline.Batches:
    """The endless training batches, after `start` images; `parts` as for the pipeline."""
    return pipeline.train_batches(
      source,
      layout=self.layout(source),
      seed=seed,
      start=start,
      batch_size=self.batch_size,
      parts=parts,
      repeats=self.settings.repeats,
      **self._reading(),
    )

  def first_training(
    self, source: Source, *, parts: Sequence[MixedSource], seed: int, count: int
  ) -> list[pipeline.Item]:
    """The first `count` examples of the first batch, read at once and without broken ones."""
    return pipeline.first_training(
      source,
      layout=self.layout(source),
      seed=seed,
      parts=parts,
      repeats=self.settings.repeats,
      count=count,
    )

  def evaluation(
    self,
    source: Source,
    *,
    resize: Size | None = None,
    squeeze: bool | None = None,
    fields: Mapping[str, Field] | None = None,
  ) -> pipeline.Batches:
    """Every image once.

    Args:
      source: the images.
      resize, squeeze: as for `images.evaluation_cut`; None: as config.data says.
      fields: of the source.
    """
    data = self.settings
    resize = data.evaluate_resize if resize is None else resize
    squeeze = data.evaluate_squeeze if squeeze is None else squeeze
    transform = evaluation_transform(data, channels=self.channels, resize=resize, squeeze=squeeze)
    crop = Crop(transform, data.image_size, channels=self.channels)
    return pipeline.evaluate_batches(
      source,
      layout=Layout.of(source, {"image": crop}, fields or {}),
      batch_size=self.evaluation_size(len(source)),
      **self._reading(),
    )

  @contextlib.contextmanager
  def ahead(self, batches: pipeline.Batches) -> Iterator[Iterator[dict]]:
    """Puts the batches on the devices before they are needed; closes them at the end."""
    sharding = meshes.batch_sharding(self.mesh)
    with contextlib.closing(batches):
      yield prefetch_to_device(batches, sharding, ahead=self.settings.ahead)

  def evaluation_size(self, images: int) -> int:
    """Images in an evaluation batch: those of a microbatch, or fewer for small sets.

    The batch of a small set holds all of it, rounded up to a multiple of DEVICE_ROWS for each
    device, or for each group of devices that compute the same images; or up to twice as many, as a
    larger set of `scored` has. Computing these rows costs less than compiling another program.
    """
    multiple = DEVICE_ROWS * meshes.groups(self.mesh)
    most = self.batch_size // self.accumulation
    own, *others = (min(most, -(-count // multiple) * multiple) for count in (images, *self.scored))
    larger = sorted({own, *(size for size in others if size > own)})
    result = larger.pop()
    for size in reversed(larger):
      if 2 * size < result:
        result = size
    return result

  def _reading(self):
    host, hosts = meshes.host_rows(self.mesh, self.batch_size)
    return dict(host=host, hosts=hosts, threads=self.settings.threads)


def evaluation_transform(data: Data, *, resize: Size, squeeze: bool, channels: int = images.RGB):
  """The function that prepares an evaluation image: image -> Cut."""
  return functools.partial(
    images.evaluation_cut,
    channels=channels,
    size=data.image_size,
    resize=resize,
    squeeze=squeeze,
    resampling=data.resampled(),
    max_pixels=data.max_pixels,
  )


def train_transform(data: Data, channels: int = images.RGB):
  """The function that prepares a training image: (image, rng=generator) -> Cut."""
  crop = train_crop(data, channels)
  if not data.augment:
    return crop
  return functools.partial(crops.augmented, crop=crop, steps=data.augment)


def train_crop(data: Data, channels: int = images.RGB):
  """The function that crops and flips a training image: (image, rng=generator) -> Cut."""
  common = dict(
    size=data.image_size,
    flip=data.flip,
    channels=channels,
    max_pixels=data.max_pixels,
    resampling=data.resampled(),
  )
  if resize := data.resized_before():
    return functools.partial(images.train_square, resize=resize, **common)
  if data.train_pad:
    return functools.partial(images.train_padded, pad=data.train_pad, **common)
  bounds = dict(area=data.crop_area, aspect=data.crop_aspect)
  return functools.partial(images.train_image, draw=crops.RULES[data.crop_rule], **bounds, **common)


class InStep:
  """The batches of one process; after an error, batches in which no image counts.

  Otherwise the other processes would wait for this one at the next batch.

  Attributes:
    failure: why batches are missing; "" if none is.
  """

  def __init__(self, batches: Batches):
    self.failure = ""
    self._batches = batches
    self._left = batches.steps

  def __iter__(self) -> Iterator[Batch]:
    return self

  def __next__(self) -> Batch:
    if not self._left:
      raise StopIteration
    self._left -= 1
    if not self.failure:
      try:
        return next(self._batches)
      except (BadImage, OSError, ConfigError, RunError) as error:
        self.failure = str(error)
    return self._batches.blank()

  def close(self):
    """Ends the threads; no further batches are available."""
    self._batches.close()


def prefetch_to_device(batches: Iterable[dict], sharding, *, ahead: int) -> Iterator[dict]:
  """Makes global arrays from host batches, and keeps `ahead` of them in transfer to the devices.

  Each process passes its own rows; the result is the global batch, sharded by `sharding`.
  """

  def put_one(batch):
    with jax.transfer_guard("allow"):  # this transfer is intended, even inside a guarded loop
      return {
        name: jax.make_array_from_process_local_data(sharding, rows) for name, rows in batch.items()
      }

  put = map(put_one, batches)
  queue = collections.deque(itertools.islice(put, ahead))
  while queue:
    yield queue.popleft()
    queue.extend(itertools.islice(put, 1))


def normalize(images: jax.Array, dtype) -> jax.Array:
  """Maps pixels 0..255 to [-1, 1] by (x - 127.5) / 127.5, inside the compiled step."""
  return ((images.astype(jnp.float32) - 127.5) / 127.5).astype(dtype)
