"""Searches a training set for copies of test images, and writes the results to files."""

import logging
import pathlib
import sys

from vit_jax.config import ConfigError, Dataset
from vit_jax.config.tool_flags import folder
from vit_jax.data.datasets import Opener
from vit_jax.storage import files


def search(
  train: Dataset,
  tests: list[Dataset],
  output: pathlib.Path,
  *,
  max_pixels: int,
  shown: int,
  options: list[str],
) -> dict:
  """Searches, writes the results, and returns the summary.

  Args:
    train: the dataset in which to find copies.
    tests: the datasets whose copies to find.
    output: folder for the results.
    max_pixels: larger images are not compared.
    shown: largest number of pairs on the page.
    options: flags for Beam.

  Raises:
    ConfigError: another search writes there, the data does not exist, Beam is not installed, or a
      flag is unknown to Beam.
  """
  opener = Opener(max_pixels, threads=1, allow_overlap=True)
  datasets = [train, *tests]
  train_source, *test_sources = [opener.source(dataset) for dataset in datasets]
  logging.disable(logging.WARNING)  # Beam warns that libraries of Google Cloud are missing
  try:
    from vit_jax.extras.duplicates import pipeline, report
  except ModuleNotFoundError as error:
    raise ConfigError(
      f"{error.name} is not installed; install it with pip install '.[dedup]'."
    ) from error
  finally:
    logging.disable(logging.NOTSET)
  folder(output, "--output")
  lengths = [len(train_source), *map(len, test_sources)]
  print(
    f"Searching {lengths[0]:,} images for copies of {sum(lengths[1:]):,} images ...",
    file=sys.stderr,
  )
  with files.one_writer(output):
    report.clear(output, pipeline.PAIRS)  # files of a search that was stopped
    sets = list(zip(datasets, lengths, strict=True))
    counts = pipeline.find_pairs(sets, output.absolute(), max_pixels=max_pixels, options=options)
    pairs = report.gather(output, pipeline.PAIRS, train_source, test_sources)
    report.write(output, pairs, train_source, test_sources, shown=shown, max_pixels=max_pixels)
  return {
    "train_images": counts["sought"],
    "test_images": counts["known"],
    "broken_images": counts["broken"],
    "pairs": len(pairs),
    "excluded": len({pair["train"] for pair in pairs}),
    "exclude": str(output / report.EXCLUDE),
    "page": str(output / report.PAGE),
  }
