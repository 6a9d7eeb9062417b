"""Writes labelled images as a TFDS dataset of ArrayRecord files, without TensorFlow.

The examples are stored in a fixed random order, so that a part of a split, such as train[:98%], is
a random part. The dataset gets its name when it is complete. Until then it is in a folder beside
it, where a preparation that was stopped continues.
"""

import collections
import concurrent.futures
import dataclasses
import json
import pathlib
import re
from collections.abc import Callable

import cv2

from vit_jax.data.permutation import Permutation
from vit_jax.data.preparation import labels, quality
from vit_jax.data.sources import Example, Source, SourceError
from vit_jax.storage.files import (
  make_folder,
  one_writer,
  read_json,
  write_text,
  write_whole,
)
from vit_jax.storage.paths import local_path

REPORT = "report.json"
VERSION = "1.0.0"

_FILE_BYTES = 2**28  # approximate size of each file
_SAMPLE = 64  # images used to estimate the size
_ORDER_SEED = 2**32 - 2  # not the seed of any run: those are below 2**31
_PLAN = "plan.json"
_MAX_BYTES = 2**20  # of the plan
_NAME = re.compile(r"[a-z][a-z0-9_]*")


def prepare(
  splits: dict[str, Source],
  data_dir: str,
  name: str,
  *,
  max_pixels: int,
  threads: int,
  started: Callable[[int], None],
  done: Callable[[int], None],
) -> dict:
  """Makes DATA_DIR/NAME/1.0.0, which the source tfds:NAME reads; returns its report.

  Args:
    splits: the examples of each split. If their classes differ, the dataset has all of them,
      sorted.
    data_dir: TFDS's folder, ~/tensorflow_datasets by default.
    name: name of the dataset.
    max_pixels: larger images count as broken.
    threads: files made at a time.
    started: called once with the number of images that are still to be read.
    done: called after each file with its number of images.

  Raises:
    SourceError: the name is invalid, the dataset exists, it cannot hold the labels, its folder
      holds another unfinished one, or no image can be decoded.
    ConfigError: another command is making the dataset.
    OSError: an image cannot be read, or the disk cannot be written.
  """
  target = local_path(data_dir).absolute() / _checked_name(name) / VERSION
  _check_new(target)
  class_names = labels.checked_classes(splits)
  make_folder(target.parent)
  with one_writer(target):
    _check_new(target)  # another command may have made it meanwhile
    return _made(target, splits, class_names, max_pixels, threads, started, done)


def _check_new(target: pathlib.Path):
  if target.exists():
    raise SourceError(f'"{target}" is already there; give another name, or delete it.')


def _made(target, splits, class_names, max_pixels, threads, started, done) -> dict:
  """Makes the dataset, or what is missing of it; returns the report."""
  folder, name = target.with_name(f"{VERSION}.incomplete"), target.parent.name
  counts = _claim(folder, splits, max_pixels)
  files = [
    _File(folder, name, split, number, counts[split])
    for split in splits
    for number in range(counts[split])
  ]
  missing = [file for file in files if not file.checked.exists()]
  started(sum(len(file.positions(splits[file.split])) for file in missing))
  make = _maker(splits, class_names, max_pixels)
  with concurrent.futures.ThreadPoolExecutor(threads) as pool:
    collections.deque(map(done, pool.map(make, missing)), maxlen=0)
  report = _completed(folder, files, splits, class_names)
  folder.rename(target)
  for leftover in [*target.glob("checked-*.json"), target / _PLAN]:
    leftover.unlink()
  return report


def _maker(
  splits: dict[str, Source], class_names: tuple[str, ...], max_pixels: int
) -> Callable[["_File"], int]:
  """A function that makes one file and returns its number of images; safe for any thread.

  Imports TFDS before there are threads: two threads that import it at once may deadlock.
  """
  features = {split: _features(class_names, source.multi_label) for split, source in splits.items()}

  def make(file: "_File") -> int:
    source = splits[file.split]
    _make(file, source, features[file.split], class_names, max_pixels)
    return len(file.positions(source))

  return make


def _completed(
  folder: pathlib.Path,
  files: list["_File"],
  splits: dict[str, Source],
  class_names: tuple[str, ...],
) -> dict:
  """Writes TFDS's metadata and the report; returns the report."""
  checked = {file: quality.Checked(**json.loads(file.checked.read_text())) for file in files}
  for leftover in folder.glob("*.partial"):  # from a process that was killed
    leftover.unlink()
  by_split = {split: [checked[file] for file in files if file.split == split] for split in splits}
  report = quality.report(by_split, {split: _order(splits[split]) for split in splits})
  for split, source in splits.items():
    report["splits"][split]["notes"] = list(source.notes)
  _write_metadata(folder, splits, by_split, class_names)
  (folder / REPORT).write_text(json.dumps(report, indent=2) + "\n")
  return report


@dataclasses.dataclass(frozen=True)
class _File:
  """One ArrayRecord file of a split."""

  folder: pathlib.Path
  name: str
  split: str
  number: int
  count: int

  @property
  def path(self) -> pathlib.Path:
    part = f"{self.number:05}-of-{self.count:05}"
    return self.folder / f"{self.name}-{self.split}.array_record-{part}"

  @property
  def checked(self) -> pathlib.Path:
    """The path of the file's findings, which are written last: if they exist, it is complete."""
    return self.path.with_name(f"checked-{self.path.name}.json")

  def positions(self, source: Source) -> range:
    """The positions in the random order that this file holds."""
    length = len(source)
    return range(length * self.number // self.count, length * (self.number + 1) // self.count)


def _checked_name(name: str) -> str:
  if not _NAME.fullmatch(name):
    raise SourceError(
      f'"{name}" is not a name for a dataset; use lower-case letters, digits and _, and begin with'
      " a letter."
    )
  return name


def _claim(folder: pathlib.Path, splits: dict[str, Source], max_pixels: int) -> dict[str, int]:
  """Makes the folder, or checks that it is for this dataset; returns the files of each split."""
  plan = folder / _PLAN
  wanted = {
    "splits": {name: [source.identity, len(source)] for name, source in splits.items()},
    "max_pixels": max_pixels,
  }
  if plan.exists():
    try:
      found = read_json(plan, most=_MAX_BYTES)
    except (OSError, ValueError) as error:
      raise SourceError(
        f'"{plan}" is damaged ({error}); delete the folder "{folder}" and start again.'
      ) from error
    if {key: found.get(key) for key in wanted} != wanted:
      raise SourceError(
        f'"{folder}" is an unfinished dataset of other images or classes; delete it, or finish it'
        " with the command that began it."
      )
    return found["files"]
  folder.mkdir(parents=True, exist_ok=True)
  files = {name: _number_of_files(source) for name, source in splits.items()}
  write_text(plan, json.dumps(wanted | {"files": files}))
  return files


def _number_of_files(source: Source) -> int:
  sample = range(0, len(source), max(1, len(source) // _SAMPLE))
  mean = sum(len(_encoded(source[index])) for index in sample) / len(sample)
  return min(len(source), max(1, round(mean * len(source) / _FILE_BYTES)))


def _order(source: Source) -> Permutation:
  """The random order: maps positions in the files to indices in the source."""
  return Permutation(len(source), seed=_ORDER_SEED)


def _encoded(example: Example) -> bytes:
  """The bytes of the image's file; pixels are encoded as PNG."""
  if isinstance(example.image, bytes):
    return example.image
  pixels = example.image
  if pixels.ndim == 3 and pixels.shape[2] == 3:
    pixels = cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR)
  return cv2.imencode(".png", pixels)[1].tobytes()


def _make(file: _File, source: Source, features, class_names, max_pixels: int) -> None:
  # Imported late, because it is slow, and only this function needs it.
  from array_record.python import array_record_module

  rows = _order(source)
  new = [class_names.index(name) for name in source.class_names]
  checked = quality.Checked()

  def fill(path: str) -> None:
    writer = array_record_module.ArrayRecordWriter(path, "group_size:1")
    for position in file.positions(source):
      example = source[rows[position]]
      numbers = tuple(new[one] for one in example.labels)
      example = example._replace(labels=numbers, image=_encoded(example))
      if quality.check(example, checked, max_pixels=max_pixels):
        record = _serialized(example, features, multi_label=source.multi_label)
        checked.bytes += len(record)
        writer.write(record)
    writer.close()

  write_whole(str(file.path), fill)
  write_text(file.checked, json.dumps(dataclasses.asdict(checked)))


def _features(class_names, multi_label: bool):
  import tensorflow_datasets as tfds

  label = tfds.features.ClassLabel(names=list(class_names))
  return tfds.features.FeaturesDict(
    {
      "image": tfds.features.Image(),
      "label": tfds.features.Sequence(label) if multi_label else label,
    }
  )


def _serialized(example: Example, features, *, multi_label: bool) -> bytes:
  label = list(example.labels) if multi_label else example.labels[0]
  return features.serialize_example(
    features.encode_example({"image": example.image, "label": label})
  )


def _write_metadata(folder, splits, by_split, class_names) -> None:
  import tensorflow_datasets as tfds

  infos = []
  for split, parts in by_split.items():
    if not sum(one.examples for one in parts):
      raise SourceError(f'Split "{split}" has no image that can be decoded; check its files.')
    infos.append(
      tfds.core.SplitInfo(
        name=split,
        shard_lengths=[one.examples for one in parts],
        num_bytes=sum(one.bytes for one in parts),
      )
    )
  tfds.folder_dataset.write_metadata(
    data_dir=str(folder),
    features=_features(class_names, next(iter(splits.values())).multi_label),
    split_infos=infos,
    version=VERSION,
    check_data=False,  # the check needs TensorFlow
  )
