"""Opens the sources that the command line names for the splits of a new data set."""

from vit_jax.data import sources
from vit_jax.data.preparation.listing import Listing


def open_split(text: str) -> tuple[str, sources.Source]:
  """The split and the source that SPLIT=folder:DIR or SPLIT=csv:FILE names.

  Raises:
    SourceError: the text has another form, or the data does not exist.
  """
  split, _, spec = text.partition("=")
  kind, _, path = spec.partition(":")
  if not split.isidentifier() or kind not in ("folder", "csv") or not path:
    raise sources.SourceError(f"--split {text!r} is not SPLIT=folder:DIR or SPLIT=csv:FILE.")
  if kind == "csv":
    return split, Listing(path)
  return split, sources.open_source(spec, split="", num_classes=1)


def open_splits(texts: list[str]) -> dict[str, sources.Source]:
  """The sources of all splits.

  Raises:
    SourceError: as `open_split`, or a split is given twice.
  """
  opened = [open_split(text) for text in texts]
  names = [name for name, _ in opened]
  for name in names:
    if names.count(name) > 1:
      raise sources.SourceError(
        f"--split {name} is given {names.count(name)} times; put its images into one folder or "
        "table, or name the splits differently."
      )
  return dict(opened)
