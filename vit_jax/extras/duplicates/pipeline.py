"""Searches for copies with Apache Beam, on one machine or with any of Beam's runners.

The known images (test sets) are few: every worker gets their fingerprints, about 4 KB each. The
training images are read once and never exchanged between workers; only the pairs found are. So the
cost is linear in the number of training images.
"""

import dataclasses
import json
import logging
import pathlib
import sys
import time
from collections.abc import Iterator, Sequence

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
from apache_beam.utils.shared import Shared

from vit_jax.config import ConfigError, Dataset
from vit_jax.data.datasets import Opener
from vit_jax.data.images import BadImage
from vit_jax.data.sources import Source
from vit_jax.extras.duplicates.fingerprint import Fingerprint, fingerprint
from vit_jax.extras.duplicates.search import Known, Search
from vit_jax.process.text import one_line

PAIRS = "pairs"
# Not Beam's DirectRunner, which first tries to download a runner in another language.
RUNNER = "FnApiRunner"

_BLOCK = 64  # images that a worker reads at a time
_COUNTERS = "images"
_NEWS = 30  # seconds between two messages of a worker

_log = logging.getLogger(__name__)


def find_pairs(
  sets: Sequence[tuple[Dataset, int]], directory: pathlib.Path, *, max_pixels: int, options
) -> dict[str, int]:
  """Writes DIRECTORY/pairs-*.jsonl, a line for each pair: train, test, set, likeness.

  Args:
    sets: the dataset in which to find copies, then those whose copies to find; each with its
      number of images.
    directory: an existing folder that every worker can access.
    max_pixels: larger images are refused.
    options: Beam's flags, as on a command line.

  Returns:
    Counts: "known" and "sought" images compared, and "broken" images of both.

  Raises:
    SourceError: the data does not exist.
    ConfigError: Beam has no such flag or runner.
  """
  pipeline = _pipeline(options)
  sought, *known = [
    pipeline
    | f"blocks {number}" >> beam.Create([length])
    | f"numbers {number}" >> beam.FlatMap(_blocks)
    | f"spread {number}" >> beam.Reshuffle()
    | f"read {number}" >> beam.ParDo(_Read(dataset, max_pixels, number - 1))
    for number, (dataset, length) in enumerate(sets)
  ]
  _ = (
    sought
    | "compare" >> beam.ParDo(_Compare(), beam.pvalue.AsList(known | beam.Flatten()))
    | beam.Map(json.dumps)
    | beam.io.WriteToText(str(directory / PAIRS), file_name_suffix=".jsonl")
  )
  result = pipeline.run()
  result.wait_until_finish()
  counts = dict.fromkeys(("known", "sought", "broken"), 0)
  ours = beam.metrics.MetricsFilter().with_namespace(_COUNTERS)
  for counter in result.metrics().query(ours)["counters"]:  # each step of the pipeline has its own
    counts[counter.key.metric.name] += counter.result
  return counts


def _pipeline(options: list[str]) -> beam.Pipeline:
  """An empty pipeline; raises ConfigError if Beam has no such flag or runner."""
  flags = PipelineOptions(options)
  standard = flags.view_as(StandardOptions)
  standard.runner = standard.runner or RUNNER
  known = flags.get_all_options()
  for name in flags.get_all_options(retain_unknown_options=True).keys() - known.keys():
    raise ConfigError(f"--{name} is neither a flag of this tool nor of Beam.")
  try:
    return beam.Pipeline(options=flags)
  except ValueError as error:
    raise ConfigError(f"Beam: {error}") from error


def _blocks(length: int) -> Iterator[range]:
  return (range(first, min(first + _BLOCK, length)) for first in range(0, length, _BLOCK))


@dataclasses.dataclass
class _Read(beam.DoFn):
  """Numbers of images -> `Known` images of test set number `place`, or (index, fingerprint)."""

  dataset: Dataset
  max_pixels: int
  place: int  # -1: the training images

  def setup(self):
    self._source = Opener(self.max_pixels, 1, True).source(self.dataset)
    self._told = time.monotonic()

  def process(self, indices):
    for index in indices:
      image_print = _fingerprint(self._source, index, self.max_pixels)
      if not image_print:
        _count("broken")
      elif self.place < 0:
        _count("sought")
        yield index, image_print
      else:
        _count("known")
        yield Known.of((self.place, index), image_print)
    if time.monotonic() > self._told + _NEWS:
      self._told = time.monotonic()
      line = f"{self.dataset.source}: at image {indices[-1]:,} of {len(self._source):,}"
      print(one_line(line), file=sys.stderr, flush=True)


def _count(kind: str):
  beam.metrics.Metrics.counter(_COUNTERS, kind).inc()


def _fingerprint(source: Source, index: int, max_pixels: int) -> Fingerprint | None:
  """The fingerprint of an image; None if it cannot be read."""
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
