"""Speed of the input pipeline, compared with tf.data on the same files and cores.

`measure` writes realistic JPEGs into a temporary folder. Both pipelines in turn read, crop, resize,
flip and batch them: tf.data on all cores, ours with several numbers of threads and of worker
processes, and from a cache. TensorFlow is needed only for this comparison.

Measure images per second on an idle machine: beside other programs, a pipeline with many threads,
such as tf.data's, gets a larger share of the cores. The CPU time per image hardly changes.
"""

import functools
import glob
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

import cv2
import numpy as np
import simplejpeg

from vit_jax.config import Augmentation
from vit_jax.data import crops, images, pipeline, sources
from vit_jax.data.layout import Crop, Layout
from vit_jax.extras import prepared_cache as cache

_HEIGHT, _WIDTH = 375, 500  # pixels, the most frequent size in ImageNet
_SIZE = 224
_AREA = (0.05, 1.0)
_ASPECT = (3 / 4, 4 / 3)
_CLASSES = 4
_MAX_PIXELS = 10**8
_CACHE_SIDE = 256


def measure(
  *,
  rounds: int = 7,
  seconds: float = 4.0,
  batch_size: int = 64,
  files: int = 512,
  counts: tuple[int, ...] | None = None,
) -> list[dict]:
  """Measures every pipeline in turn, `rounds` times, and reports medians.

  Args:
    rounds: number of turns of each pipeline.
    seconds: length of a turn without warm-up.
    batch_size: images in a batch.
    files: number of JPEGs of about 100 KB to make.
    counts: numbers of threads, and of worker processes with one thread each, for our pipeline;
      default: 1, 2, 4 and so on, and the number of cores.

  Returns:
    [{name, images_per_second, ratio, cpu_microseconds}]; ratio is the median over the rounds of the
    speed divided by tf.data's, cpu_microseconds the CPU time per image.

  Raises:
    SystemExit: TensorFlow is not installed.
  """
  cores = len(os.sched_getaffinity(0))
  counts = counts or tuple(sorted({1 << i for i in range(cores.bit_length())} | {cores}))
  with tempfile.TemporaryDirectory() as temporary:
    folder = os.path.join(temporary, "jpegs")
    write_jpegs(folder, count=files)
    source = sources.open_source(f"folder:{folder}", split="")
    runs = {"tf.data": functools.partial(tf_batches, folder, batch_size=batch_size)}
    for threads in counts:
      runs[f"vit_jax threads={threads}"] = functools.partial(
        our_batches, source, batch_size=batch_size, threads=threads
      )
    cached = _cached(source, os.path.join(temporary, "cache"), threads=cores)
    for threads in counts:
      runs[f"vit_jax cached, threads={threads}"] = functools.partial(
        our_batches, cached, batch_size=batch_size, threads=threads
      )
    speeds = turns(runs, rounds, seconds=seconds, batch_size=batch_size)
  return [row(name, speeds) for name in runs]


def write_jpegs(folder: str, *, count: int, seed: int = 0) -> None:
  """Writes `count` JPEGs of 500 x 375 pixels into `_CLASSES` class folders."""
  rng = np.random.default_rng(seed)
  for index in range(count):
    quality = int(rng.integers(88, 96))
    data = simplejpeg.encode_jpeg(natural_image(rng), quality=quality, colorsubsampling="420")
    directory = os.path.join(folder, f"class{index % _CLASSES}")
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, f"{index:05}.jpg"), "wb") as stream:
      stream.write(data)


def natural_image(rng: np.random.Generator) -> np.ndarray:
  """Colour noise with the 1 / f amplitudes of photographs, and twelve objects with edges."""
  luma = 120 + 45 * _noise(rng, power=1.0)
  blue, red = (12 * _noise(rng, power=1.6) for _ in range(2))
  image = np.stack([luma + 1.4 * red, luma - 0.34 * blue - 0.71 * red, luma + 1.77 * blue], -1)
  for _ in range(12):
    shape = np.zeros((_HEIGHT, _WIDTH), np.uint8)
    centre = rng.uniform(0, 1, 2) * (_WIDTH, _HEIGHT)
    axes = rng.uniform(20, 180, 2)
    cv2.ellipse(shape, (tuple(centre), tuple(axes), rng.uniform(0, 180)), 1, -1)
    image[shape > 0] = 0.6 * image[shape > 0] + 0.4 * rng.uniform(0, 255, 3)
  return np.clip(image, 0, 255).astype(np.uint8)


def _noise(rng: np.random.Generator, *, power: float) -> np.ndarray:
  """(H, W) noise of unit variance; its amplitudes are proportional to 1 / frequency ** power."""
  vertical = np.fft.fftfreq(_HEIGHT)[:, None]
  horizontal = np.fft.rfftfreq(_WIDTH)[None]
  frequency = np.hypot(vertical, horizontal)
  frequency[0, 0] = 1
  spectrum = rng.normal(size=frequency.shape) + 1j * rng.normal(size=frequency.shape)
  noise = np.fft.irfft2(spectrum / frequency**power, s=(_HEIGHT, _WIDTH))
  return (noise - noise.mean()) / noise.std()


class _Long:
  """A small source that pretends to be as long as ImageNet; shuffling a short one takes longer."""

  def __init__(self, source: sources.Source):
    self._source = source
    self.class_names = source.class_names
    self.multi_label = source.multi_label
    self.distant = source.distant

  def __len__(self) -> int:
    return 1_281_167

  def __getitem__(self, index: int) -> sources.Example:
    return self._source[index % len(self._source)]

  def name(self, index: int) -> str:
    return self._source.name(index % len(self._source))


def _cached(source: sources.Source, folder: str, *, threads: int) -> cache.Cached:
  """The source's cache, made in `folder`; it is small enough to stay in memory."""
  options = dict(side=_CACHE_SIDE, max_pixels=_MAX_PIXELS)
  cache.prepare(source, folder, threads=threads, **options)
  return cache.Cached(source, folder, **options)


def our_batches(
  source: sources.Source, *, batch_size: int, threads: int, steps: Sequence[Augmentation] = ()
) -> Iterator:
  """Our pipeline; `steps` come after crop and flip."""
  crop = functools.partial(
    images.train_image, size=_SIZE, area=_AREA, aspect=_ASPECT, flip=True, max_pixels=_MAX_PIXELS
  )
  prepared = functools.partial(crops.augmented, crop=crop, steps=steps)
  return pipeline.train_batches(
    _Long(source),
    layout=Layout.of(source, {"image": Crop(prepared, _SIZE)}, {}),
    seed=0,
    batch_size=batch_size,
    host=0,
    hosts=1,
    start=0,
    threads=threads,
  )


def tf_batches(
  folder: str, *, batch_size: int, augment: Callable = lambda tf, image: image
) -> Iterator:
  """tf.data's pipeline; `augment`, (tf, image) -> image, comes after crop and flip."""
  os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
  try:
    import tensorflow as tf
  except ImportError as error:
    raise SystemExit(
      "The data benchmark compares with tf.data and needs TensorFlow: pip install tensorflow-cpu."
    ) from error
  paths, labels = _listing(folder)
  dataset = tf.data.Dataset.from_tensor_slices((paths, labels)).shuffle(len(paths)).repeat()
  dataset = dataset.map(
    functools.partial(_tf_example, tf, augment), num_parallel_calls=tf.data.AUTOTUNE
  )
  return iter(dataset.batch(batch_size, drop_remainder=True).prefetch(2))


def _tf_example(tf, augment, path, label):
  """Processes one file like the published training pipeline, but keeps 8 bits, as ours does."""
  data = tf.io.read_file(path)
  begin, extent, _ = tf.image.sample_distorted_bounding_box(
    tf.io.extract_jpeg_shape(data),
    tf.zeros([0, 0, 4], tf.float32),
    aspect_ratio_range=_ASPECT,
    area_range=_AREA,
    min_object_covered=0,
    use_image_if_no_bounding_boxes=True,
  )
  window = tf.concat([begin[:2], extent[:2]], axis=0)
  image = tf.image.resize(tf.io.decode_and_crop_jpeg(data, window, channels=3), (_SIZE, _SIZE))
  return augment(tf, tf.image.random_flip_left_right(tf.cast(image, tf.uint8))), label


def _listing(folder: str) -> tuple[list[str], list[int]]:
  files = [
    (os.path.join(folder, name, file), label)
    for label, name in enumerate(sorted(os.listdir(folder)))
    for file in sorted(os.listdir(os.path.join(folder, name)))
  ]
  return [path for path, _ in files], [label for _, label in files]


class Speed(NamedTuple):
  """The speed of a pipeline."""

  images_per_second: float
  cpu_microseconds: float  # per image


def cpu_seconds() -> float:
  """CPU time of this process and of its child processes that still run."""
  ticks = 0
  for children in glob.glob("/proc/self/task/*/children"):
    for pid in _of_process(children).split():
      fields = _of_process(f"/proc/{pid}/stat").rpartition(")")[2].split()
      ticks += sum(map(int, fields[11:13]))  # user and system
  return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


def _of_process(path: str) -> str:
  """The text of a file in /proc; "" if its thread or process has ended."""
  try:
    with open(path) as stream:
      return stream.read()
  except (FileNotFoundError, ProcessLookupError):
    return ""


def turn(
  make: Callable[[], Iterator],
  *,
  seconds: float,
  batch_size: int,
  cpu: Callable[[], float] = cpu_seconds,
) -> Speed:
  """Speed of a pipeline, created for this turn because even a waiting pipeline takes CPU time.

  A warm-up of half the turn comes first, so that threads and buffers settle.
  """
  others = threading.enumerate()
  batches = make()
  next(batches)
  warm_until = time.perf_counter() + seconds / 2
  while time.perf_counter() < warm_until:
    next(batches)
  count = 0
  start = time.perf_counter()
  before = cpu()
  while not count or time.perf_counter() < start + seconds:
    next(batches)
    count += batch_size
  speed = Speed(count / (time.perf_counter() - start), (cpu() - before) / count * 1e6)
  if hasattr(batches, "close"):  # tf.data's iterators end when they are garbage-collected
    batches.close()
    for thread in threading.enumerate():
      if thread.name.startswith(pipeline.THREADS) and thread not in others:
        thread.join()  # It still reads files, which would disturb the next turn or fail.
  return speed


def turns(
  runs: dict[str, Callable[[], Iterator]], rounds: int, *, cores: Collection[int] = (), **options
) -> list[dict[str, Speed]]:
  """The speeds of all pipelines in each round.

  Args:
    runs: functions that make the batches, by name.
    rounds: number of turns of each.
    cores: those that the threads begun meanwhile run on; (): all of this process.
    options: of `turn`.
  """
  before = os.sched_getaffinity(0)
  os.sched_setaffinity(0, cores or before)
  try:
    return [{name: turn(make, **options) for name, make in runs.items()} for _ in range(rounds)]
  finally:
    os.sched_setaffinity(0, before)


def row(name: str, turns: list[dict[str, Speed]], beside: str = "tf.data") -> dict:
  """The medians of a pipeline over the turns, and its speed relative to another's."""
  rates = [turn[name].images_per_second for turn in turns]
  ratios = [turn[name].images_per_second / turn[beside].images_per_second for turn in turns]
  return {
    "name": name,
    "images_per_second": round(statistics.median(rates), 1),
    "ratio": round(statistics.median(ratios), 3),
    "cpu_microseconds": round(statistics.median(turn[name].cpu_microseconds for turn in turns)),
  }
