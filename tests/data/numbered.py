"""Sources of images that contain their own numbers, and batches of them."""

import contextlib
import functools

import numpy as np

from tests.data import tfds_fixture
from vit_jax.data import images, pipeline
from vit_jax.data.crops import Box, Cut
from vit_jax.data.layout import Crop, Layout
from vit_jax.data.sources import Example, Source

SIZE, CLASSES = 8, 10

TRAIN = functools.partial(
  images.train_image, size=SIZE, area=(0.05, 1.0), aspect=(0.75, 4 / 3), flip=True, max_pixels=10**6
)
EVALUATE = functools.partial(images.evaluation_cut, size=SIZE, resize=0, max_pixels=10**6)


def whole(pixels):
  """The cut of a square that is all of an image."""
  return Cut(pixels, pixels.shape[:2], pixels.shape[:2], Box(0, 0, *pixels.shape[:2]))


def layout(source, cut=TRAIN, side=SIZE):
  """What a batch of these examples holds, with this way to cut their images."""
  return Layout.of(source, {"image": Crop(cut, side)}, {})


class Listed(Source):
  """Examples from a list; an error in the list is raised when its index is read."""

  identity = "listed"

  def __init__(self, examples, *, multi_label=False):
    self._examples = examples
    self.multi_label = multi_label
    self.class_names = tuple(str(label) for label in range(CLASSES))

  def __len__(self):
    return len(self._examples)

  def __getitem__(self, index):
    if isinstance(self._examples[index], Exception):
      raise self._examples[index]
    return self._examples[index]

  def labels(self, index):
    return self[index].labels

  def name(self, index):
    return getattr(self._examples[index], "name", f"example {index}")


def numbered(count: int) -> Listed:
  """Image `index` has every pixel equal to index % 251 and label index % 10."""
  pixels = [np.full((9, 9, 3), index % 251, np.uint8) for index in range(count)]
  names = [f"number {index}" for index in range(count)]
  return Listed([Example(x, (i % CLASSES,), names[i]) for i, x in enumerate(pixels)])


def jpegs(count: int) -> Listed:
  rng = np.random.default_rng(0)
  files = [tfds_fixture.jpeg_of(rng) for _ in range(count)]
  return Listed([Example(x, (i % CLASSES,), f"file {i}.jpg") for i, x in enumerate(files)])


def train(
  source, *, steps: int, batch_size=16, start_step=0, cut=TRAIN, side=SIZE, made=None, **options
):
  """The first `steps` batches, of the layout `made` or of one image; `options` of the pipeline."""
  options = dict(host=0, hosts=1, seed=0, threads=0) | options
  batches = pipeline.train_batches(
    source,
    layout=made or layout(source, cut, side),
    batch_size=batch_size,
    start=start_step * batch_size,
    **options,
  )
  with contextlib.closing(batches):
    return [next(batches) for _ in range(steps)]


def evaluate(source, *, batch_size: int, made=None, host=0, hosts=1, threads=0):
  made = made or layout(source, EVALUATE)
  options = dict(batch_size=batch_size, host=host, hosts=hosts, threads=threads)
  return list(pipeline.evaluate_batches(source, layout=made, **options))


def assert_equal(first: list[dict], second: list[dict]) -> None:
  assert len(first) == len(second)
  for one, other in zip(first, second, strict=True):
    assert one.keys() == other.keys()
    for key in one:
      assert one[key].dtype == other[key].dtype
      np.testing.assert_array_equal(one[key], other[key])


def joined(per_host: list[list[dict]]) -> list[dict]:
  """Joins the hosts' batches to global batches."""
  return [
    {key: np.concatenate([batch[key] for batch in batches]) for key in batches[0]}
    for batches in zip(*per_host, strict=True)
  ]
