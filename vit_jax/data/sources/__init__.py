"""Sources of images, with or without labels: `registry.SOURCES` lists those that can be named.

Advice for files that the named source does not read, or that do not exist.
"""

import difflib
import inspect
import itertools
import os
import re

from vit_jax import registry
from vit_jax.config import Data, Dataset
from vit_jax.config.suggestions import alike
from vit_jax.data.sources.base import (
  ColumnError,
  Example,
  Listed,
  Mixed,
  Renumbered,
  Selected,
  Source,
  SourceError,
  Unlabelled,
  in_one_order,
)
from vit_jax.data.sources.subset import Remaining, Subset
from vit_jax.storage import files
from vit_jax.storage.paths import is_url, path_of

__all__ = [
  "ColumnError",
  "Example",
  "Listed",
  "Mixed",
  "Remaining",
  "Renumbered",
  "Selected",
  "Source",
  "SourceError",
  "Subset",
  "Unlabelled",
  "anywhere",
  "forms",
  "in_one_order",
  "is_named",
  "is_prefixed",
  "label_key_of",
  "meant",
  "member",
  "named_parts",
  "open_source",
  "recognised",
]

_PREFIX = re.compile(r"[A-Za-z][\w.+-]+:(?!//)")


def open_source(
  spec: str,
  *,
  split: str = "",
  image_key: str = Dataset().image_key,
  label_key: str = Dataset().label_key,
  max_pixels: int = Data().max_pixels,
) -> Source:
  """Opens the examples that `spec` names.

  Args:
    spec: in the form of one of `registry.SOURCES`, such as "folder:DIR", or a path, as in
      `recognised`.
    split: the part of the examples, as the source names its parts; "": all, or it has no parts.
    image_key: the feature that holds the image, where examples have several.
    label_key: the feature that holds the label or the labels; "": no labels.
    max_pixels: larger images count as broken, for a source that decodes images itself.

  Raises:
    SourceError: there is no such source, or the data or the split does not exist.
  """
  given = spec
  spec = recognised(given)
  kind = member(spec)
  settings = {"image_key": image_key, "label_key": label_key, "max_pixels": max_pixels}
  takes = inspect.signature(kind).parameters
  if "split" in takes:
    settings["split"] = split
  elif split:
    raise SourceError(
      f'"{kind.form}" has no splits, but split "{split}" was given; set the split to "".'
    )
  _, colon, argument = spec.partition(":")
  arguments = [argument] if colon else []
  source = kind(*arguments, **{name: settings[name] for name in settings.keys() & takes.keys()})
  if spec != given:
    source.notes = [*source.notes, f"{given!r} is read as {spec}."]
  if not label_key and "label_key" not in takes:
    return Unlabelled(source)
  return source


def label_key_of(spec: str, split: str, label_key: str = Dataset().label_key) -> str:
  """The `label_key` with which to open images whose labels are not needed: "", except for a part.

  A part such as "[90%:]" may be taken from each class, so without labels it has other images.

  Raises:
    SourceError: there is no such source.
  """
  if "[" not in split:
    return ""
  return label_key if member(recognised(spec)).parts_by_class else ""


def recognised(text: str) -> str:
  """The source that a text names; for a path, by its content: "folder:DIR" for a folder of images.

  Returns:
    The text itself if it names a source, or nothing is recognised.
  """
  if is_named(text) or is_prefixed(text) or not text:
    return text
  path = path_of(text)
  names = (name for name in registry.SOURCES if registry.SOURCES[name].recognises(path))
  return next((f"{name}:{text}" for name in names), text)


def meant(word: str) -> str:
  """The source that a word of the command line names: as `recognised`, but a path comes first.

  So "digits" is a folder of that name, if there is one; in settings, it always is the source.
  """
  if is_named(word) and os.path.exists(word):
    word = os.path.join(os.curdir, word)
  return recognised(word)


def member(spec: str) -> type[Source]:
  """The class of the source that `spec` names.

  Raises:
    SourceError: there is none.
  """
  if not is_named(spec):
    raise SourceError(f'"{spec}" does not name a data source{_advice(spec)}')
  return registry.SOURCES[spec.partition(":")[0]]


def is_named(text: str) -> bool:
  """Whether a text has the form of a source."""
  name, colon, argument = text.partition(":")
  if name not in registry.SOURCES or bool(colon) != bool(argument):
    return False
  return (":" in registry.SOURCES[name].form) == bool(colon)


def is_prefixed(text: str) -> bool:
  """Whether a text begins with a word and a colon, as sources do, and is no path or URL."""
  return bool(_PREFIX.match(text)) and not os.path.exists(text)


def anywhere(spec: str) -> str:
  """The same source for any current directory, with an absolute path."""
  spec = recognised(spec)
  if not is_named(spec):
    return spec
  name, colon, argument = spec.partition(":")
  return name + colon + member(spec).anywhere(argument)


def named_parts(spec: str) -> dict[str, tuple[str, str]]:
  """The named parts of the data of a source, such as train and test: {name: (spec, split)}.

  Raises:
    SourceError: there is no such source or data.
  """
  spec = recognised(spec)
  name, _, argument = spec.partition(":")
  found = {}
  for part, (argument_of_part, split) in member(spec).named_parts(argument).items():
    found[part] = (":".join(filter(None, [name, argument_of_part])), split)
  return found


def forms(nearest: str = "") -> str:
  """The forms of all sources, as text; names similar to `nearest` come first."""
  names = sorted(
    registry.SOURCES,
    key=lambda name: difflib.SequenceMatcher(None, nearest, name).ratio(),
    reverse=True,
  )
  return ", ".join(registry.SOURCES[name].form for name in names)


def _advice(spec: str) -> str:
  if advice := advice_on(spec):
    return f".{advice}"
  if ":" not in spec and not os.path.exists(spec):
    question = near(spec)
    if question:
      return f", and {_there(spec)}.{question}"
  path = ""
  if ":" not in spec or is_url(spec):
    path = f", and {_there(spec)}"
  return f"{path}; give one of these, nearest first: {forms(spec.partition(':')[0])}."


def _there(path: str) -> str:
  """Whether something is at a path, in words."""
  there = files.exists(path_of(path)) if is_url(path) else os.path.exists(path)
  return "it is a file of none" if there else "there is no file or folder of that name"


MOST = 10_000  # most names in a folder to compare

TABLE = "write a CSV file with a line path,label for each image, and give csv:FILE."
_ADVICE = {
  re.compile(r"\.(tgz|zip|tar\.\w+)\b", re.IGNORECASE): (
    "Compressed archives are not read: unpack them, and name the folder or the .tar files."
  ),
  re.compile(r"\.tar\b", re.IGNORECASE): "Tar files of a WebDataset are named wds:PATTERN.",
  re.compile(r"\.parquet\b", re.IGNORECASE): "Parquet files are named parquet:PATH.",
  re.compile(r"\.[ct]sv\b", re.IGNORECASE): "A CSV file is named csv:FILE.",
}


def advice_on(text: str) -> str:
  """A sentence, after a space, on the kind of file that is named; "" without advice."""
  return next((f" {said}" for named, said in _ADVICE.items() if named.search(text)), "")


def near(path: str) -> str:
  """A question, after a space, that names files similar to a missing path; "" if there are none."""
  folder, name = os.path.split(os.path.abspath(os.path.expanduser(path)))
  try:
    with os.scandir(folder) as entries:
      names = [entry.name for entry in itertools.islice(entries, MOST)]
  except (OSError, ValueError):
    return ""
  found = [os.path.join(os.path.dirname(path), each) for each in alike(name, names, 0.6)[:3]]
  if not found:
    return ""
  return f" Did you mean {' or '.join(found)}?"
