"""Opens the sources that the command line names for the splits of a new dataset."""

from collections.abc import Sequence

from vit_jax.config import similar
from vit_jax.data import sources
from vit_jax.data.preparation.listing import Listing
from vit_jax.data.sources import Listed, Renumbered, Selected, Source, SourceError
from vit_jax.process.text import nfc


def open_splits(texts: list[str], classes: Sequence[str] = ()) -> dict[str, Source]:
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
      raise SourceError(
        f"--split {name} is given {names.count(name)} times; put its images into one folder or "
        "table, or name the splits differently."
      )
  return {name: OfClasses(source, classes) if classes else source for name, source in opened}


def open_split(text: str) -> tuple[str, Source]:
  """The split and the source that SPLIT=csv:FILE or SPLIT=SOURCE names.

  Of a source that has splits itself, takes the split of the same name.

  Raises:
    SourceError: the text has another form, or the data does not exist.
  """
  split, _, spec = text.partition("=")
  kind, _, path = spec.partition(":")
  table = kind == "csv" and path
  if not split.isidentifier() or not (table or sources.is_named(spec)):
    raise SourceError(
      f"--split {text!r} is not SPLIT=csv:FILE or SPLIT=SOURCE, with one of {sources.forms(kind)}."
    )
  if split == "all":
    raise SourceError(
      '--split all=...: "all" means every split to TensorFlow Datasets; take another name.'
    )
  if table:
    return split, Listing(path)
  return split, sources.open_source(spec, split=split if sources.member(spec).splits else "")


class OfClasses(Renumbered):
  """The examples of a source whose labels are all among some classes, in the source's order.

  Args:
    source: the examples.
    names: the classes. They keep the source's order, and their numbers begin at 0.

  Raises:
    SourceError: the source has no such class, or no example of these classes.
  """

  def __init__(self, source: Source, names: Sequence[str]):
    names = nfc(names)
    for name in names:
      if name not in source.class_names:
        raise SourceError(
          f"--classes: {source.identity} has no class {name!r}; nearest: "
          f"{similar(name, source.class_names)}."
        )
    kept = [name for name in source.class_names if name in names]
    numbers = {source.class_names.index(name): new for new, name in enumerate(kept)}
    has = lambda labels: bool(labels) and numbers.keys() >= set(labels)
    rows = [row for row in range(len(source)) if has(source.labels(row))]
    if not rows:
      raise SourceError(f"--classes leaves no image of {source.identity}; name more classes.")
    chosen = Selected(source, Listed(rows), f"{source.identity}, classes {kept!r}")
    super().__init__(chosen, numbers, kept)
