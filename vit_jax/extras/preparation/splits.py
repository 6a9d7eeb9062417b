"""Opens the sources that the command line names for a new dataset's splits; checks classes."""

from collections.abc import Sequence, Set

from vit_jax.config import similar
from vit_jax.data import sources
from vit_jax.data.jpeg import BadImage
from vit_jax.data.sources import Listed, Renumbered, Selected, Source, SourceError
from vit_jax.data.sources.table import ordered
from vit_jax.process.text import nfc
from vit_jax.recipes.loading import columns_named, keys_of


def open_splits(texts: list[str], classes: Sequence[str] = ()) -> dict[str, Source]:
  """The sources of all splits.

  Args:
    texts: as for `open_split`.
    classes: the classes to keep; (): all. A split may lack some of them.

  Raises:
    SourceError: as `open_split`; a split is given twice, no split has one of the classes, or a
      split has no image of them.
  """
  opened = [open_split(text) for text in texts]
  names = [name for name, _ in opened]
  for name in names:
    if names.count(name) > 1:
      raise SourceError(
        f"--split {name} is given {names.count(name)} times; put its images into one folder or "
        "table, or name the splits differently."
      )
  if not classes:
    return dict(opened)
  known = {name for _, source in opened for name in source.class_names}
  for name in nfc(classes):
    if name not in known:
      raise SourceError(
        f"--classes: no split has a class {name!r}; nearest: {similar(name, known)}."
      )
  kept = {name: OfClasses(source, classes) for name, source in opened}
  for name, source in kept.items():
    if not len(source):
      raise SourceError(
        f'--classes leaves no image of split "{name}"; name one of its classes, or leave the split '
        "out."
      )
  return kept


def open_split(text: str) -> tuple[str, Source]:
  """The split and the source that SPLIT=SOURCE names, perhaps with the keys of its columns.

  If the data has splits of its own, takes the one of the same name, which must exist if there are
  several.

  Raises:
    SourceError: the text has another form, the data does not exist, or has other splits.
  """
  split, _, spec = text.partition("=")
  spec, keys = keys_of(spec)
  spec = sources.meant(spec)
  if not split.isidentifier() or not sources.is_named(spec):
    forms = sources.forms(spec.partition(":")[0])
    raise SourceError(f"--split {text!r} is not SPLIT=SOURCE, with one of {forms}.")
  if split == "all":
    raise SourceError(
      '--split all=...: "all" means every split to TensorFlow Datasets; take another name.'
    )
  parts = sources.named_parts(spec)
  by_name = {name: (place, name) for place, name in parts.values() if name}
  if len(parts) > 1 and split not in parts | by_name:
    raise SourceError(
      f"--split {text!r}: {spec!r} has the splits {', '.join(parts)}, and not {split!r}; give the "
      "new split the name of one of them."
    )
  spec, its_split = (by_name | parts).get(split, (spec, ""))
  with columns_named():
    return split, sources.open_source(spec, split=its_split, **keys)


class OfClasses(Renumbered):
  """The examples whose labels are all among some classes, in the source's order.

  Examples whose labels cannot be read are among them, so that they are reported as broken.

  Args:
    source: the examples.
    names: the classes. Those that the source has keep its order, and are numbered from 0.
  """

  def __init__(self, source: Source, names: Sequence[str]):
    names = nfc(names)
    kept = [name for name in source.class_names if name in names]
    numbers = {source.class_names.index(name): new for new, name in enumerate(kept)}
    rows = []
    for row in range(len(source)):
      if _may_be_of(source, row, numbers.keys()):
        rows.append(row)
    chosen = Selected(source, Listed(rows), f"{source.identity}, classes {kept!r}")
    super().__init__(chosen, numbers, kept)


def _may_be_of(source: Source, row: int, classes: Set[int]) -> bool:
  """Whether all labels of an example are among some classes, or cannot be read."""
  try:
    labels = source.labels(row)
  except BadImage:
    return True
  return bool(labels) and classes >= set(labels)


def checked_classes(splits: dict[str, Source]) -> tuple[str, ...]:
  """The class names of all splits; in the order of `ordered` if the splits differ.

  TFDS stores the names in UTF-8, one a line. When it reads them, it strips each line and drops
  empty ones. A name that TFDS changes could shift all labels.

  Raises:
    SourceError: TFDS cannot store a class name, a split has no labels or two classes of the same
      name, or the splits have different kinds of labels.
  """
  for split, source in splits.items():
    if not source.class_names:
      raise SourceError(
        f'Split "{split}" has no labels, and each image of a dataset has one; give a CSV file with '
        "the same label in every row."
      )
  kinds = {source.multi_label: split for split, source in splits.items()}
  if len(kinds) > 1:
    raise SourceError(
      f'Images of split "{kinds[True]}" have any number of labels, and those of split '
      f'"{kinds[False]}" exactly one; prepare them as two datasets.'
    )
  for split, source in splits.items():
    for number, name in enumerate(source.class_names):
      problem = _problem(name)
      if name in source.class_names[:number]:
        problem = "another class has this name"
      if problem:
        raise SourceError(
          f'Split "{split}" has a class {name!r}, which a dataset cannot hold: {problem}; rename '
          "the folder, or the label in the table."
        )
  lists = [source.class_names for source in splits.values()]
  if len(set(lists)) == 1:
    return lists[0]
  return ordered(set().union(*lists))


def _problem(name: str) -> str:
  """Says what TFDS would change in a class name; "" if nothing."""
  if not name.strip():
    return "it is empty"
  if name != name.strip():
    return "it begins or ends with white space"
  if "\n" in name or "\r" in name:
    return "it has a line break"
  if name.encode(errors="replace").decode() != name:
    return "it is not valid UTF-8"
  return ""
