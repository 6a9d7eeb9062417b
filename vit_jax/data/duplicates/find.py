"""From two datasets to the list of copies among them, in files."""

import pathlib
import sys

from vit_jax.config import ConfigError, Dataset
from vit_jax.config.tool_ending import folder
from vit_jax.data import duplicates


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
    train: where copies are looked for.
    tests: of what.
    output: folder of the results.
    max_pixels: larger images are not compared.
    shown: pairs on the page at most.
    options: flags of Beam.

  Raises:
    ConfigError: data that is not there, Beam is not installed, or knows no such flag.
  """
  opened = [duplicates.open_one(one) for one in (train, *tests)]
  try:
    from vit_jax.data.duplicates import pipeline, report
  except ModuleNotFoundError as error:
    raise ConfigError(
      f"{error.name} is not installed; install it with pip install '.[dedup]'."
    ) from error
  folder(output, "--output")
  report.clear(output, pipeline.PAIRS)  # away with what a run that was stopped has left
  print(
    f"Looking among {len(opened[0]):,} images for copies of {sum(map(len, opened[1:])):,} ...",
    file=sys.stderr,
  )
  counts = pipeline.find_pairs(
    train, tests, output.absolute(), max_pixels=max_pixels, options=options
  )
  pairs = report.gather(output, pipeline.PAIRS, opened[0], opened[1:])
  report.write(output, pairs, opened[0], opened[1:], shown=shown, max_pixels=max_pixels)
  return {
    "train_images": counts["sought"],
    "test_images": counts["known"],
    "broken_images": counts["broken"],
    "pairs": len(pairs),
    "excluded": len({pair["train"] for pair in pairs}),
    "exclude": str(output / report.EXCLUDE),
    "page": str(output / report.PAGE),
  }
