"""Opens the sources that the command line names for the splits of a new dataset."""

from collections.abc import Sequence

from vit_jax.data import sources
from vit_jax.data.preparation.listing import Listing
from vit_jax.data.preparation.of_classes import OfClasses


def open_split(text: str) -> tuple[str, sources.Source]:
  """The split and the source that SPLIT=folder:DIR, SPLIT=csv:FILE or SPLIT=tfds:NAME names.

  Raises:
    SourceError: the text has another form, or the data does not exist.
  """
  split, _, spec = text.partition("=")
  kind, _, path = spec.partition(":")
  if not split.isidentifier() or kind not in ("folder", "csv", "tfds") or not path:
    raise sources.SourceError(
      f"--split {text!r} is not SPLIT=folder:DIR, SPLIT=csv:FILE or SPLIT=tfds:NAME."
    )
  if split == "all":
    raise sources.SourceError(
      '--split all=...: "all" means every split to TensorFlow Datasets; take another name.'
    )
  if kind == "csv":
    return split, Listing(path)
  of_tfds = split if kind == "tfds" else ""
  return split, sources.open_source(spec, split=of_tfds, num_classes=1)


def open_splits(texts: list[str], classes: Sequence[str] = ()) -> dict[str, sources.Source]:
  """The sources of all splits.

  Args:
    texts: as for `open_split`.
    classes: the classes to keep; (): all.

  Raises:
    SourceError: as `open_split` and `OfClasses`, or a split is given twice.
  """
  opened = [open_split(text) for text in texts]
  names = [name for name, _ in opened]
  for name in names:
    if names.count(name) > 1:
      raise sources.SourceError(
        f"--split {name} is given {names.count(name)} times; put its images into one folder or "
        "table, or name the splits differently."
      )
  return {name: OfClasses(one, classes) if classes else one for name, one in opened}
