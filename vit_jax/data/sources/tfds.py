"""Reads datasets that TensorFlow Datasets prepared as ArrayRecord, without TensorFlow."""

import contextlib
import functools
import itertools
import logging
import os
import pathlib
import re
import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple

from vit_jax.data import byte_ranges, records
from vit_jax.data.jpeg import BadImage
from vit_jax.data.sources import several
from vit_jax.data.sources.base import Block, Example, Source, SourceError
from vit_jax.process.text import nfc, quoted
from vit_jax.storage import files
from vit_jax.storage.paths import Path, absolute, is_url, path_of

_log = logging.getLogger(__name__)
_SPEC = re.compile(r"(?P<name>\w+)(/(?P<config>[^:]+))?(:(?P<version>\d+\.\d+\.\d+))?")
_DESCRIBE = (".json", ".txt")  # suffixes of the files that describe a dataset
_MAX_DESCRIPTION = 2**30  # most bytes of these files
_INFO = "dataset_info.json"
_VERSION = re.compile(r"\d+\.\d+\.\d+")
# Datasets and labels where an empty list is no statement: the raters of ReaL agreed on no class.
_UNDECIDED = {("imagenet2012_real", "real_label")}
DIGEST = "vit_jax_digest"  # in metadata.json; written by vit-jax prepare


class Records(Source):
  """The records of a split, by position, and their features.

  A subclass makes the image and the labels of an example from the features.

  Args:
    prepared: from `open_prepared`.
    split: any TFDS split.
    image_key: feature that holds the image, which stays encoded.
    label_key: any feature; "": none.

  Raises:
    SourceError: the split does not exist.
    BadImage: from an item: its record is damaged.
    RunError: from an item: its file is missing, has too few records, or cannot be opened.
  """

  def __init__(self, prepared: "Prepared", split: str, *, image_key: str, label_key: str):
    builder = prepared.builder
    self._title = f"tfds:{builder.info.full_name}"
    self._firsts = _first_examples(builder)
    self._records = _open_split(prepared, split)
    self.distant = byte_ranges.distant(prepared.folder)
    # Parses only these two features: others may need decoders that are not installed.
    features = builder.info.features
    label_keys = [label_key] if label_key else []
    self._parse = _parser(features, image_key, *label_keys)
    self._parse_label = _parser(features, *label_keys)

  def __len__(self) -> int:
    return len(self._records)

  def features(self, index: int) -> dict:
    """The image and the label of an example."""
    return self._parse(self._read(index))

  def label(self, index: int) -> dict:
    """Only the label; reads the whole record, but does not parse the image."""
    return self._parse_label(self._read(index))

  def name(self, index: int) -> str:
    """A name with the dataset, the example's whole split, and its position in that split.

    So an example has the same name in every subsplit, such as "train[:90%]".
    """
    path, row = self._records.place(index)
    split, first = self._firsts[os.path.basename(path)]
    return f"{self._title} {split} example {first + row}"

  def blocks(self) -> Iterator[Block]:
    """The records of each file."""
    real = functools.cache(lambda folder: files.real(path_of(folder)))
    begin = 0
    for path, first, count, _ in self._records.parts:
      folder, name = os.path.split(path)
      place = str(real(folder) / name)
      yield Block(place, range(first, first + count), range(begin, begin + count))
      begin += count

  def _read(self, index: int) -> bytes:
    try:
      return self._records[index]
    except records.DamagedRecord as error:
      raise BadImage(f"{self.name(index)}: {error}") from error


class Tfds(Records):
  """One split of a prepared dataset; never downloads or builds anything.

  Args:
    spec: NAME[/CONFIG][:VERSION]; without VERSION, the newest version that is prepared. Or the
      folder of a version.
    split: any TFDS split, such as "train", "train[:90%]", "train[10000:]" or "train+test".
    image_key: feature that holds the image.
    label_key: feature that holds a class label, or a sequence of them (multi-label); "": no labels.

  Raises:
    SourceError: the dataset, split or feature does not exist, or does not allow random access.
    BadImage, RunError: from an item: as `Records`.
  """

  form = "tfds:NAME[/CONFIG][:VERSION]"
  parts_by_class = False  # but in the order of the records

  def __init__(self, spec: str, *, split: str, image_key: str, label_key: str):
    self._image_key = image_key
    self._label_key = label_key
    prepared = open_prepared(spec)
    builder = prepared.builder
    self.identity = prepared.identity(split, image_key, label_key)
    check_features(builder, *filter(None, [image_key, label_key]))
    self.class_names = ()
    if label_key:
      label = _label_feature(builder, label_key)
      self.multi_label = hasattr(label, "feature")
      self.none_is_undecided = (builder.info.name, label_key) in _UNDECIDED
      self.class_names = nfc(getattr(label, "feature", label).names)
    super().__init__(prepared, split, image_key=image_key, label_key=label_key)
    if builder.info.disable_shuffling and "[" in split:
      _log.warning(
        "The examples of tfds:%s were written without shuffling, so %r is not a random part: it may"
        " lack classes, or hold few different subjects.",
        spec,
        split,
      )

  def __getitem__(self, index: int) -> Example:
    features = self.features(index)
    return Example(features[self._image_key], self._as_labels(features), self.name(index))

  def labels(self, index: int) -> tuple[int, ...]:
    """The labels of the record; reads the whole record, but does not decode the image."""
    if not self._label_key:
      return ()
    return self._as_labels(self.label(index))

  @classmethod
  def named_parts(cls, argument: str) -> dict[str, tuple[str, str]]:
    """The splits of the dataset."""
    return {split: (argument, split) for split in open_prepared(argument).builder.info.splits}

  @classmethod
  def anywhere(cls, argument: str) -> str:
    """The absolute path, if the argument is a folder."""
    return absolute(argument) if _is_folder(argument) else argument

  @classmethod
  def recognises(cls, path: Path) -> bool:
    """Whether the path is the folder of a version."""
    return byte_ranges.is_file(path / _INFO)

  def _as_labels(self, features: dict) -> tuple[int, ...]:
    if not self._label_key:
      return ()
    label = features[self._label_key]
    if not self.multi_label:
      return (int(label),)
    labels = tuple(map(int, label))
    if len({*labels}) < len(labels):
      raise SourceError(f"{self.identity}: an example {several.repeated(labels)}")
    return labels


class Prepared(NamedTuple):
  """A prepared dataset.

  Attributes:
    builder: TFDS's builder.
    folder: the folder with its files.
    digest: the digest of its content that vit-jax prepare stored; "": there is none.
  """

  builder: Any
  folder: Path
  digest: str = ""

  def identity(self, *choices: str) -> str:
    """As `Source.identity`, of the examples that `choices` choose, such as the split."""
    words = (f"tfds:{self.builder.info.full_name}", *choices, self.digest)
    return " ".join(filter(None, words))


def open_prepared(spec: str) -> Prepared:
  """Opens a prepared dataset, NAME[/CONFIG][:VERSION].

  Raises:
    SourceError: the dataset does not exist, or does not allow random access.
  """
  # Imported late: the import takes two seconds, and other sources do not need it.
  import tensorflow_datasets as tfds
  from google.protobuf import json_format

  directory = _find(spec)
  try:
    with _metadata(directory) as place:
      builder = tfds.builder_from_directory(place)
      digest = str(builder.info.metadata.get(DIGEST, ""))  # read now: `place` may be temporary
  except (json_format.ParseError, ValueError) as error:
    raise SourceError(
      f'The metadata in "{directory}" are damaged ({error}); prepare or copy the dataset again.'
    ) from error
  array_record = tfds.core.FileFormat.ARRAY_RECORD
  if array_record not in builder.info.available_file_formats():
    raise SourceError(
      f'"{directory}" is prepared as {builder.info.file_format.value}, which does not allow random'
      f" access; `vit-jax prepare convert {quoted(directory)}` adds files"
      " that do (it needs pip install '.[prepare]')."
    )
  if builder.info.file_format != array_record:
    builder.info.set_file_format(array_record, override=True, override_if_initialized=True)
  return Prepared(builder, directory, digest)


@contextlib.contextmanager
def _metadata(directory: Path) -> Iterator[Path]:
  """A folder on this machine with the files that describe a dataset."""
  if not byte_ranges.distant(directory):
    yield directory
    return
  with tempfile.TemporaryDirectory() as scratch:
    names = [path.name for path in files.matching(directory) if path.suffix in _DESCRIBE]
    files.copy_files(directory, pathlib.Path(scratch), names, most=_MAX_DESCRIPTION)
    yield pathlib.Path(scratch)


def _find(spec: str) -> Path:
  """The folder `spec`, or the folder of the dataset: TFDS_DATA_DIR/NAME/[CONFIG/]VERSION."""
  if _is_folder(spec):
    return path_of(spec)
  if is_url(spec):
    raise SourceError(f'"{spec}" has no {_INFO}; give the folder of a version of a dataset.')
  match = _SPEC.fullmatch(spec)
  if not match:
    raise SourceError(f'"tfds:{spec}" is not of the form tfds:NAME[/CONFIG][:1.2.3].')
  root = os.environ.get("TFDS_DATA_DIR") or os.path.join("~", "tensorflow_datasets")
  directory = path_of(root) / match["name"]
  if match["config"]:
    directory = directory / match["config"]
  versions = versions_in(directory)
  version = match["version"]
  if not version and versions:
    version = versions[-1]
  if version in versions:
    return directory / version
  raise SourceError(_missing(spec, directory=directory, versions=versions))


def versions_in(directory: Path) -> list[str]:
  """The versions of a dataset in its folder, the newest last."""
  names = (path.name for path in files.matching(directory))
  return sorted(filter(_VERSION.fullmatch, names), key=_version_key)


def _is_folder(spec: str) -> bool:
  return "/" in spec and byte_ranges.is_file(path_of(spec) / _INFO)


def _version_key(version: str) -> tuple[int, ...]:
  return tuple(int(number) for number in version.split("."))


def _missing(spec: str, *, directory, versions: list[str]) -> str:
  found = f"there is no prepared dataset in {directory}"
  if versions:
    found = f"{directory} has only version {', '.join(versions)}"
  elif children := [path.name for path in files.matching(directory)]:
    found = f"{directory} has no version, only {', '.join(children)} (to use a config, name it)"
  return (
    f"tfds:{spec}: {found}; prepare it with `vit-jax prepare build {quoted(spec)}` (it"
    " needs pip install '.[prepare]'), or set TFDS_DATA_DIR to the folder that has it."
  )


def check_features(builder, *keys: str) -> None:
  """Raises SourceError if the dataset lacks one of these features."""
  features = builder.info.features
  missing = [key for key in keys if key not in features]
  if missing:
    raise SourceError(
      f'Dataset {builder.info.full_name} has no feature "{missing[0]}"; it has'
      f" {', '.join(sorted(features))}."
    )


def _label_feature(builder, label_key: str):
  """The feature of the label, checked to hold class labels."""
  label = builder.info.features[label_key]
  if not hasattr(getattr(label, "feature", label), "names"):
    raise SourceError(
      f'Feature "{label_key}" of {builder.info.full_name} is {label!r}, not a class label or a'
      " sequence of class labels; name another label_key."
    )
  return label


def _open_split(prepared: Prepared, split: str) -> records.Records:
  """The serialised records of a split, by position."""
  builder = prepared.builder
  splits = builder.info.splits
  known = ", ".join(f"{name} ({info.num_examples} examples)" for name, info in splits.items())
  try:
    ranges = splits[split].file_instructions
  except (ValueError, KeyError, AssertionError):  # the split is unknown or malformed
    ranges = []
  if not ranges:
    raise SourceError(
      f'Split "{split}" names no examples of tfds:{builder.info.full_name}; its splits are {known},'
      ' and parts of them such as "train[:90%]".'
    )
  remedy = f"prepare {builder.info.full_name} again, or copy it again from a complete copy"
  paths = [prepared.folder / os.path.basename(each.filename) for each in ranges]
  stamps = [None] * len(paths)
  if byte_ranges.distant(prepared.folder):
    stamps, missing = byte_ranges.looked_up(paths)
    if missing:
      raise SourceError(f'There is no file "{paths[missing[0]]}": {remedy}.')
  spans = [
    records.Span(str(path), each.skip, each.take, stamp)
    for path, each, stamp in zip(paths, ranges, stamps, strict=True)
  ]
  return records.Records(spans, remedy=remedy)


def _first_examples(builder) -> dict[str, tuple[str, int]]:
  """{name of a file: (its split, position of its first example in the split)}."""
  found = {}
  for split, info in builder.info.splits.items():
    firsts = itertools.accumulate(info.shard_lengths, initial=0)
    for name, first in zip(info.filenames, firsts, strict=False):
      found[name] = (split, first)
  return found


def _parser(features, *keys: str):
  """A function from a serialised record to these features; images stay encoded bytes."""
  import tensorflow_datasets as tfds

  subset = tfds.features.FeaturesDict({key: features[key] for key in keys})
  images = [key for key in keys if isinstance(features[key], tfds.features.Image)]
  decoders = {key: tfds.decode.SkipDecoding() for key in images}
  return functools.partial(subset.deserialize_example_np, decoders=decoders)
