"""What a run took as its data, as a table for the console and as facts for the report."""

from collections.abc import Sequence

from vit_jax.data.apart import Use, in_words
from vit_jax.process.columns import aligned


def table(uses: Sequence[Use]) -> str:
  """A line for each dataset, with its numbers of images and classes, and lines with the notes."""
  rows = [["data", "source", "images", "classes"]]
  for use in uses:
    count, classes = len(use.source), len(use.source.class_names)
    name = use.key.removeprefix("config.")
    rows.append([name, in_words(use.dataset), f"{count:,}", f"{classes:,}" if classes else "-"])
  return "\n".join([aligned(rows, left=(0, 1)), *notes(uses)])


def notes(uses: Sequence[Use]) -> list[str]:
  """What users should know of the datasets, such as files that are left out; each once."""
  return [*dict.fromkeys(note for use in uses for note in getattr(use.source, "notes", ()))]
