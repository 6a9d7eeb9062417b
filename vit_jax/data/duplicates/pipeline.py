"""Searches for copies with Apache Beam, on one machine or with any of Beam's runners.

The known images (test sets) are few: every worker gets their fingerprints, about 4 KB each. The
training images are read once and never exchanged between workers; only the pairs found are. So the
cost is linear in the number of training images.
"""

import dataclasses
import json
import logging
import pathlib
import time
from collections.abc import Iterator

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
from apache_beam.utils.shared import Shared

from vit_jax.config import ConfigError, Dataset
from vit_jax.data.datasets import Opener
from vit_jax.data.duplicates.fingerprint import Fingerprint, fingerprint
from vit_jax.data.duplicates.search import Known, Search
from vit_jax.data.images import BadImage
from vit_jax.data.sources import Source

PAIRS = "pairs"
# Not Beam's DirectRunner, which first tries to download a runner in another language.
RUNNER = "FnApiRunner"

_BLOCK = 64  # images that a worker takes at a time
_BLOCKS = 1000  # blocks in an element of the pipeline's description, which must stay small
_COUNTERS = "images"
_NEWS = 30  # seconds between two messages of a worker

_log = logging.getLogger(__name__)


def find_pairs(
  train: Dataset, tests: list[Dataset], directory: pathlib.Path, *, max_pixels: int, options
) -> dict[str, int]:
  """Writes DIRECTORY/pairs-*.jsonl, a line for each pair: train, test, set, likeness.

  Args:
    train: the dataset in which to find copies.
    tests: the datasets whose copies to find.
    directory: an existing folder that every worker can access.
    max_pixels: larger images are refused.
    options: Beam's flags, as on a command line.

  Returns:
    Counts: "known" and "sought" images compared, and "broken" images of both.

  Raises:
    SourceError: the data does not exist.
    ConfigError: Beam has no such flag or runner.
  """
  lengths = [len(Opener(max_pixels, 1, True).source(dataset)) for dataset in (train, *tests)]
  flags = PipelineOptions(options)
  flags.view_as(StandardOptions).runner = flags.view_as(StandardOptions).runner or RUNNER
  known_flags = flags.get_all_options()
  for name in flags.get_all_options(retain_unknown_options=True).keys() - known_flags.keys():
    raise ConfigError(f"--{name} is neither a flag of this tool nor of Beam.")
  try:
    pipeline = beam.Pipeline(options=flags)
  except ValueError as error:
    raise ConfigError(f"Beam: {error}") from error
  known = [
    pipeline | f"test {i}" >> _Fingerprints(test, length, "known", max_pixels=max_pixels, place=i)
    for i, (test, length) in enumerate(zip(tests, lengths[1:], strict=True))
  ]
  _ = (
    pipeline
    | "train" >> _Fingerprints(train, lengths[0], "sought", max_pixels=max_pixels, place=None)
    | "compare" >> beam.ParDo(_Compare(), beam.pvalue.AsList(known | beam.Flatten()))
    | beam.Map(json.dumps)
    | beam.io.WriteToText(str(directory / PAIRS), file_name_suffix=".jsonl")
  )
  result = pipeline.run()
  result.wait_until_finish()
  counts = dict.fromkeys(("known", "sought", "broken"), 0)
  ours = beam.metrics.MetricsFilter().with_namespace(_COUNTERS)
  for counter in result.metrics().query(ours)["counters"]:  # one for each step of the pipeline
    counts[counter.key.metric.name] += counter.result
  return counts


class _Fingerprints(beam.PTransform):
  """Fingerprints of a source: `Known` images of set number `place`, or (index, fingerprint)."""

  def __init__(self, dataset: Dataset, length: int, counter: str, *, max_pixels: int, place):
    super().__init__()
    self._length, self._read = length, _Read(dataset, counter, max_pixels, place)

  def expand(self, begin):
    step = _BLOCK * _BLOCKS
    return (
      begin
      | beam.Create([(i, min(i + step, self._length)) for i in range(0, self._length, step)])
      | beam.FlatMap(_blocks)
      | beam.Reshuffle()
      | beam.ParDo(self._read)
    )


def _blocks(ends: tuple[int, int]) -> Iterator[tuple[int, int]]:
  first, end = ends
  return ((i, min(i + _BLOCK, end)) for i in range(first, end, _BLOCK))


@dataclasses.dataclass
class _Read(beam.DoFn):
  """(first, end) -> fingerprints of the images from `first` to `end` - 1."""

  dataset: Dataset
  counter: str
  max_pixels: int
  place: int | None

  def setup(self):
    self._source = Opener(self.max_pixels, 1, True).source(self.dataset)
    self._told = time.monotonic()

  def process(self, ends):
    for index in range(*ends):
      image_print = _fingerprint(self._source, index, self.max_pixels)
      beam.metrics.Metrics.counter(_COUNTERS, self.counter if image_print else "broken").inc()
      if image_print:
        yield (
          (index, image_print) if self.place is None else Known.of((self.place, index), image_print)
        )
    if time.monotonic() > self._told + _NEWS:
      self._told = time.monotonic()
      _log.warning("%s: around image %d of %d", self.dataset.source, ends[1], len(self._source))


def _fingerprint(source: Source, index: int, max_pixels: int) -> Fingerprint | None:
  try:
    return fingerprint(source[index].image, max_pixels=max_pixels)
  except (BadImage, OSError) as error:
    _log.warning("Not compared: %s: %s", source.name(index), error)
    return None


class _Compare(beam.DoFn):
  """(index, fingerprint), all known images -> a description of each pair."""

  def __init__(self):
    self._shared = Shared()  # all threads of a process share one search

  def process(self, element, known):
    index, sought = element
    search = self._shared.acquire(lambda: Search(known))
    for (number, place), likeness in search.copied(sought).items():
      yield {"train": index, "test": place, "set": number, "likeness": round(likeness, 4)}
