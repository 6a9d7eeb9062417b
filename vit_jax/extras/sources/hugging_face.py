"""Hugging Face datasets on this machine: saved in a folder, or in the library's cache."""

import functools
import os
import pathlib
from collections.abc import Iterator, Mapping

import numpy as np

from vit_jax.config import Dataset
from vit_jax.data import byte_ranges
from vit_jax.data.sources import table
from vit_jax.data.sources.base import Block, Example, SourceError
from vit_jax.extras.sources import arrow, splits
from vit_jax.storage.paths import Path, local_path

_SAVED = ("dataset_dict.json", "state.json")  # of several splits, and of a single one
_PIECE = 4096  # rows whose images are searched for paths at once


class HuggingFace(table.Table):
  """One split of a dataset, in its order; never downloads data, and never runs a dataset's code.

  Examples are read in place from Arrow files, which the library maps into memory.

  Args:
    spec: a folder that `save_to_disk` wrote, or NAME[:CONFIG] of a dataset that `load_dataset` has
      put into the library's cache.
    split: a split, if there are several, and a range: "train", "train[:90%]", "[:90%]", "".
    image_key: the feature of the images; "image": that, or the one of type Image.
    label_key: the feature of the labels; "label": that, or the one of type ClassLabel; "": none.

  Raises:
    SourceError: there is no such dataset, split or feature, or the library is not installed.
    BadImage: from an item: there is no image.
  """

  form = "hf:NAME_OR_PATH[:CONFIG]"

  def __init__(
    self,
    spec: str,
    *,
    split: str = "",
    image_key: str = Dataset().image_key,
    label_key: str = Dataset().label_key,
  ):
    name, cut = splits.divided(split)
    self._spec = spec
    self._split = name
    examples = _of_split(spec, _opened(spec), name)
    schema = examples.features.arrow_schema
    where = f"hf:{spec}"

    def values(column: str):
      return examples.select_columns([column]).with_format("arrow")[:].column(0)

    image, label = arrow.columns(where, schema, image_key, label_key, split="", values=values)
    chunks = values(label).chunks if label else ()
    labels = arrow.labels(where, schema, label, chunks, len(examples))
    keys = np.array([b"%d" % row for row in range(len(examples))])

    def pieces(column: str) -> Iterator:
      tables = examples.select_columns([column]).with_format("arrow").iter(_PIECE)
      return (piece.column(0) for piece in tables)

    few = arrow.few_values(schema, pieces)
    self.notes = arrow.notes(where, schema.names, (image, label, ""), few)
    # The library's fingerprint distinguishes datasets with the same labels.
    words = "hf", examples._fingerprint, name, arrow.in_identity(schema, image)
    super().__init__(" ".join(filter(None, words)), keys, labels, cut)
    self._images = examples.select_columns([image]).with_format("arrow")
    if arrow.is_text(schema.field(image).type) and len(examples):
      arrow.check_paths(where, image, self._images[0].column(0).to_pylist())
    paths = [os.path.realpath(file["filename"]) for file in examples.cache_files]
    self._place = "\n".join(paths) or self.identity
    self._folder = pathlib.Path(paths[0]).parent if paths else pathlib.Path()
    self._kind = schema.field(image).type

  def __getitem__(self, index: int) -> Example:
    name = self.name(index)
    value = self._images[int(self.rows[index])].column(0)[0].as_py()
    return Example(arrow.image(value, self._folder, name), self.labels(index), name)

  def name(self, index: int) -> str:
    """The dataset, the split, and the row in it."""
    return f"hf:{self._spec} {self._split} row {self.rows[index]}"

  def blocks(self) -> Iterator[Block]:
    """The rows of the files, and the image files that rows name."""
    indices = np.arange(len(self))
    return arrow.blocks(
      self._place, self.rows, indices, folder=self._folder, in_files=self._in_files
    )

  @functools.cached_property
  def _in_files(self) -> tuple[np.ndarray, np.ndarray]:
    """`arrow.paths` of all rows."""
    pieces = ()
    if arrow.may_be_paths(self._kind):
      pieces = enumerate(self._images.iter(_PIECE))
    return arrow.paths((_PIECE * number, piece.column(0)) for number, piece in pieces)

  @classmethod
  def anywhere(cls, argument: str) -> str:
    """The absolute path of a folder."""
    if _is_folder(argument):
      return super().anywhere(argument)
    return argument

  @classmethod
  def named_parts(cls, argument: str) -> dict[str, tuple[str, str]]:
    """The splits."""
    opened = _opened(argument)
    if not isinstance(opened, Mapping):
      return {}
    return {split.lower(): (argument, split) for split in opened}

  @classmethod
  def recognises(cls, path: Path) -> bool:
    """Whether `save_to_disk` wrote the folder."""
    return any(byte_ranges.is_file(path / name) for name in _SAVED)


def _is_folder(spec: str) -> bool:
  return os.path.isdir(local_path(spec))


def _opened(spec: str):
  """A Dataset, or the Datasets of all splits."""
  is_folder = _is_folder(spec)
  try:
    import datasets  # imported late: it takes two seconds, and only this source needs it
    from datasets.packaged_modules.cache.cache import Cache
  except ImportError as error:
    raise SourceError(
      f"\"hf:{spec}\" needs the library datasets: pip install '.[hf]' ({error})."
    ) from error
  if is_folder:
    path = os.path.abspath(os.path.expanduser(spec))
    try:
      return datasets.load_from_disk(path)
    except (OSError, ValueError, KeyError, TypeError) as error:
      raise SourceError(
        f'"{path}" cannot be read as a dataset that save_to_disk wrote ({error}); a folder of '
        "Parquet files is named parquet:PATH."
      ) from error
  name, _, config = spec.partition(":")
  try:
    cached = Cache(
      dataset_name=name.rpartition("/")[2],
      repo_id=name,
      config_name=config or None,
      version="auto",
      hash="auto",
    )
    return cached.as_dataset()
  except (OSError, ValueError, KeyError, TypeError) as error:
    why = " ".join(str(error).split())
    call = ", ".join(repr(argument) for argument in (name, config) if argument)
    raise SourceError(
      f'"hf:{spec}" is neither a folder nor in the cache of Hugging Face ({why}); runs download '
      f'nothing, so do it before: python -c "import datasets; datasets.load_dataset({call})".'
    ) from error


def _of_split(spec: str, opened, split: str):
  """The examples of a split."""
  found = opened
  if not isinstance(opened, Mapping):
    found = {str(opened.split or ""): opened}
  if not split and len(found) == 1:
    return next(iter(found.values()))
  if split not in found:
    there = ", ".join(filter(None, found)) or "none"
    raise SourceError(f'"hf:{spec}" has the splits: {there}; name one, not {split!r}.')
  return found[split]
