"""The examples of some classes of a source."""

from collections.abc import Sequence

from vit_jax.config import similar
from vit_jax.data.sources import Listed, Renumbered, Selected, Source, SourceError
from vit_jax.process.text import nfc


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
    self.notes = getattr(source, "notes", ())
