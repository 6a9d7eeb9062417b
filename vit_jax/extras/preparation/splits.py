"""The sources of a new dataset's splits, as the command line names them, and their classes."""

from collections.abc import Sequence

from vit_jax.config import similar
from vit_jax.data import sources
from vit_jax.data.sources import Listed, Renumbered, Selected, Source, SourceError
from vit_jax.data.sources.table import ordered
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
  """The split and the source that SPLIT=SOURCE names.

  Of data that comes in parts, takes the part of the same name.

  Raises:
    SourceError: the text has another form, or the data does not exist.
  """
  split, _, spec = text.partition("=")
  spec = sources.recognised(spec)
  if not split.isidentifier() or not sources.is_named(spec):
    forms = sources.forms(spec.partition(":")[0])
    raise SourceError(f"--split {text!r} is not SPLIT=SOURCE, with one of {forms}.")
  if split == "all":
    raise SourceError(
      '--split all=...: "all" means every split to TensorFlow Datasets; take another name.'
    )
  spec, part = sources.named_parts(spec).get(split, (spec, ""))
  return split, sources.open_source(spec, split=part)


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


def checked_classes(splits: dict[str, Source]) -> tuple[str, ...]:
  """The class names of all splits; in the order of `ordered` if the splits differ.

  TFDS stores the names in UTF-8, one a line. When it reads them, it strips each line and drops
  empty ones. A name that it would change could shift all labels.

  Raises:
    SourceError: TFDS cannot hold a class name, a split has two classes of one name, or the splits
      have different kinds of labels.
  """
  kinds = {source.multi_label: split for split, source in splits.items()}
  if len(kinds) > 1:
    raise SourceError(
      f'Images of split "{kinds[True]}" have any number of labels, and those of split '
      f'"{kinds[False]}" exactly one; prepare them as two datasets.'
    )
  for split, source in splits.items():
    for number, name in enumerate(source.class_names):
      again = name in source.class_names[:number]
      if problem := "another class has this name" if again else _problem(name):
        raise SourceError(
          f'Split "{split}" has a class {name!r}, which a dataset cannot hold: {problem}; rename '
          "the folder, or the label in the table."
        )
  lists = [source.class_names for source in splits.values()]
  return lists[0] if len(set(lists)) == 1 else ordered(set().union(*lists))


def _problem(name: str) -> str:
  """What TFDS would change in a class name, in words; "": nothing."""
  if not name.strip():
    return "it is empty"
  if name != name.strip():
    return "it begins or ends with white space"
  if "\n" in name or "\r" in name:
    return "it has a line break"
  return "" if name.encode(errors="replace").decode() == name else "it is not valid UTF-8"
