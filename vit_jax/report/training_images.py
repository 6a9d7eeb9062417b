"""The training images that a run kept at its start."""

import csv

from vit_jax.report.document import Picture
from vit_jax.report.run import RecordedRun
from vit_jax.report.scored_set import numbered, rows_of
from vit_jax.report.thumbnails import thumbnails
from vit_jax.storage.starts import CLASSES
from vit_jax.storage.workdir import IMAGES


def pictures(run: RecordedRun) -> list[Picture]:
  """The images with their classes, [] if the run kept none."""
  folder = run.folder / IMAGES
  try:
    told = {int(row): classes for row, classes in rows_of(folder / CLASSES, 2)}
  except (OSError, ValueError, csv.Error):
    told = {}
  captions = {row: told.get(row, "") for row in numbered(folder)}
  alt = lambda caption: f"A training image of {caption}." if caption else "A training image."
  return thumbnails(numbered(folder), captions, alt)
