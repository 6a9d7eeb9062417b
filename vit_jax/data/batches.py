"""Makes batches from opened sources; config.data says how images are prepared."""

import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence

from jax.sharding import Mesh

from vit_jax.config import Data, ObjectiveSettings
from vit_jax.data import crops, images, pipeline, resampling
from vit_jax.data.augmentation.steps import augmented
from vit_jax.data.device import prefetch_to_device
from vit_jax.data.fields import Field
from vit_jax.data.layout import Crop, Layout
from vit_jax.data.order import MixedSource
from vit_jax.data.sources import Source
from vit_jax.devices import mesh as meshes

DEVICE_ROWS = 8  # rows that vector units process at once


@dataclasses.dataclass(frozen=True)
class Reader:
  """Reads this host's share of every batch, and puts it on the devices.

  Attributes:
    settings: how images are prepared and read.
    mesh: the devices.
    batch_size: images in a training step, over all hosts.
    accumulation: number of microbatches of a step; an evaluation batch has the size of one, or of
      the set if that is smaller.
    objective: decides what a training batch holds.
  """

  settings: Data
  mesh: Mesh
  batch_size: int
  accumulation: int
  objective: ObjectiveSettings = ObjectiveSettings()

  def layout(self, source: Source) -> Layout:
    """The layout of a training batch of these examples."""
    views = self.objective.views(self.settings)
    crops = {}
    for name, view in views.items():
      crops[name] = Crop(train_transform(view.data), view.data.image_size, view.count)
    fields = self.objective.fields(self.settings)
    squares = sum(view.count or 1 for view in views.values())
    if squares <= 1:
      return Layout.of(source, crops, fields)
    decode = functools.partial(images.as_rgb, max_pixels=self.settings.max_pixels)
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
    self, source: Source, *, resize: int, squeeze: bool, fields: Mapping[str, Field] | None = None
  ) -> pipeline.Batches:
    """Every image once; arguments as for `images.evaluation_cut`, and fields of the source."""
    return self._once(source, fields, resize=resize, squeeze=squeeze)

  def squares(self, source: Source) -> pipeline.Batches:
    """Every image once: the centre of a square of 8/7 of the image size."""
    side = resampling.square(self.settings.image_size)
    return self._once(source, None, resize=side, squeeze=True)

  @contextlib.contextmanager
  def ahead(self, batches: pipeline.Batches) -> Iterator[Iterator[dict]]:
    """Puts the batches on the devices before they are needed; closes them at the end."""
    sharding = meshes.batch_sharding(self.mesh)
    with contextlib.closing(batches):
      yield prefetch_to_device(batches, sharding, ahead=self.settings.ahead)

  def _once(self, source, fields, **how):
    crop = Crop(evaluation_transform(self.settings, **how), self.settings.image_size)
    return pipeline.evaluate_batches(
      source,
      layout=Layout.of(source, {"image": crop}, fields or {}),
      batch_size=self.evaluation_size(len(source)),
      **self._reading(),
    )

  def evaluation_size(self, images: int) -> int:
    """Images in an evaluation batch: those of a microbatch, so that large sets share a program.

    A smaller set has a batch of its own size, rounded up to a multiple of DEVICE_ROWS for each
    device, or for each group of devices that compute the same images.
    """
    multiple = DEVICE_ROWS * meshes.groups(self.mesh)
    return min(self.batch_size // self.accumulation, -(-images // multiple) * multiple)

  def _reading(self):
    host, hosts = meshes.host_rows(self.mesh, self.batch_size)
    return dict(host=host, hosts=hosts, threads=self.settings.threads)


def evaluation_transform(data: Data, *, resize: int, squeeze: bool):
  """The function that prepares an evaluation image: image -> Cut."""
  return functools.partial(
    images.evaluation_cut,
    size=data.image_size,
    resize=resize,
    squeeze=squeeze,
    resampling=data.resampled(),
    max_pixels=data.max_pixels,
  )


def train_transform(data: Data):
  """The function that prepares a training image: (image, rng=generator) -> Cut."""
  crop = train_crop(data)
  if not data.augment:
    return crop
  return functools.partial(augmented, crop=crop, steps=data.augment)


def train_crop(data: Data):
  """The function that crops and flips a training image: (image, rng=generator) -> Cut."""
  common = dict(
    size=data.image_size,
    flip=data.flip,
    max_pixels=data.max_pixels,
    resampling=data.resampled(),
  )
  if side := data.resized_side():
    return functools.partial(images.train_square, resize=side, **common)
  if data.train_pad:
    return functools.partial(images.train_padded, pad=data.train_pad, **common)
  bounds = dict(area=data.crop_area, aspect=data.crop_aspect)
  return functools.partial(images.train_image, draw=crops.RULES[data.crop_rule], **bounds, **common)
