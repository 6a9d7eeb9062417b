"""Writes labelled images as a TFDS dataset of ArrayRecord files, without TensorFlow.

The examples are stored in a fixed random order, so that a slice of a split, such as train[:98%], is
a random sample. The dataset gets its name when it is complete. Until then it is in a folder beside
it, where a preparation that was stopped continues.
"""

import collections
import concurrent.futures
import dataclasses
import hashlib
import json
import pathlib
import re
from collections.abc import Callable, Iterator, Sequence

import cv2

from vit_jax.data import records
from vit_jax.data.jpeg import BadImage
from vit_jax.data.order import Permutation
from vit_jax.data.sources import Example, Source, SourceError
from vit_jax.data.sources.tfds import DIGEST, versions_in
from vit_jax.extras.preparation import quality
from vit_jax.extras.preparation.splits import checked_classes
from vit_jax.storage.base import raised_as
from vit_jax.storage.files import make_folder, one_writer, read_json, write_text
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
  data_dir: str | pathlib.Path,
  name: str,
  *,
  max_pixels: int,
  threads: int,
  started: Callable[[int], None] = lambda count: None,
  done: Callable[[int], None] = lambda count: None,
) -> dict:
  """Makes DATA_DIR/NAME/1.0.0, which the source tfds:NAME reads; returns its report.

  Args:
    splits: the examples of each split. If their classes differ, the dataset has the sorted union.
    data_dir: TFDS's folder.
    name: the name of the dataset.
    max_pixels: larger images count as broken.
    threads: the number of files made at a time.
    started: called once with the number of images still to be read.
    done: called after each file with its number of images.

  Raises:
    SourceError: the name is invalid, the dataset exists, it cannot hold the labels, an image has no
      label, the folder holds another unfinished dataset, or no image can be decoded.
    ConfigError: another command is making the dataset.
    OSError: an image cannot be read, or the disk cannot be written.
  """
  target = local_path(data_dir).absolute() / _checked_name(name) / VERSION
  _check_new(target)
  new = _NewDataset(target, splits, checked_classes(splits), max_pixels)
  make_folder(target.parent)
  with one_writer(target):
    _check_new(target)  # another command may have made it meanwhile
    files = new.files()
    missing = [file for file in files if not file.checked.exists()]
    started(sum(map(len, missing)))
    new.features()  # imports TFDS before there are threads: two that import it at once may deadlock
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
      collections.deque(map(done, pool.map(new.make, missing)), maxlen=0)
    return new.complete(files)


def _check_new(target: pathlib.Path):
  if there := versions_in(target.parent):  # the newest of several versions would be read
    place = target.with_name(there[-1])
    raise SourceError(f'"{place}" is already there; give another name, or delete it.')


@dataclasses.dataclass(frozen=True)
class _File:
  """One ArrayRecord file of a split: the examples at `positions` of its random order."""

  path: pathlib.Path
  split: str
  positions: range

  def __len__(self) -> int:
    return len(self.positions)

  @property
  def checked(self) -> pathlib.Path:
    """The path of the file's findings. They are written last: if they exist, it is complete."""
    return self.path.with_name(f"checked-{self.path.name}.json")


@dataclasses.dataclass(frozen=True)
class _NewDataset:
  """A dataset that is being made, in a folder beside its place."""

  target: pathlib.Path
  splits: dict[str, Source]
  class_names: tuple[str, ...]
  max_pixels: int

  @property
  def multi_label(self) -> bool:
    return next(iter(self.splits.values())).multi_label

  @property
  def folder(self) -> pathlib.Path:
    return self.target.with_name(f"{VERSION}.incomplete")

  def files(self) -> list[_File]:
    """All files; makes the folder, or checks that it belongs to this dataset."""
    files = []
    name = self.target.parent.name
    for split, count in self._claimed().items():
      length = len(self.splits[split])
      for i in range(count):
        path = self.folder / f"{name}-{split}.array_record-{i:05}-of-{count:05}"
        files.append(_File(path, split, range(length * i // count, length * (i + 1) // count)))
    return files

  def _claimed(self) -> dict[str, int]:
    """The number of files of each split: from the plan in the folder, or from a new plan."""
    plan = self.folder / _PLAN
    wanted = {
      "splits": {name: [source.identity, len(source)] for name, source in self.splits.items()},
      "max_pixels": self.max_pixels,
    }
    if plan.exists():
      return self._files_of_plan(plan, wanted)
    self.folder.mkdir(parents=True, exist_ok=True)
    files = {name: _number_of_files(source) for name, source in self.splits.items()}
    write_text(plan, json.dumps(wanted | {"files": files}))
    return files

  def _files_of_plan(self, plan: pathlib.Path, wanted: dict) -> dict[str, int]:
    """The number of files of each split in an existing plan.

    Raises:
      SourceError: the plan is damaged, or differs from `wanted`.
    """
    words = lambda error: (
      f'"{plan}" is damaged ({error}); delete the folder "{self.folder}" and start again.'
    )
    with raised_as(SourceError, words, OSError, ValueError):
      found = read_json(plan, most=_MAX_BYTES)
    if {key: found.get(key) for key in wanted} != wanted:
      raise SourceError(
        f'"{self.folder}" is an unfinished dataset of other images or classes; delete it, or '
        "finish it with the command that began it."
      )
    return found["files"]

  def features(self, *, multi_label: bool = False):
    """TFDS's description of an example."""
    import tensorflow_datasets as tfds

    label = tfds.features.ClassLabel(names=list(self.class_names))
    if multi_label:
      label = tfds.features.Sequence(label)
    return tfds.features.FeaturesDict({"image": tfds.features.Image(), "label": label})

  def make(self, file: _File) -> int:
    """Makes a file and returns its number of images; thread-safe."""
    checked = quality.Checked()
    records.write(str(file.path), self._records(file, checked))
    write_text(file.checked, json.dumps(dataclasses.asdict(checked)))
    return len(file)

  def _records(self, file: _File, checked: quality.Checked) -> Iterator[bytes]:
    """Yields the records of a file; adds the findings for their images to `checked`."""
    source = self.splits[file.split]
    rows = _order(source)
    features = self.features(multi_label=source.multi_label)
    numbers = [self.class_names.index(name) for name in source.class_names]
    for position in file.positions:
      try:
        example = source[rows[position]]
      except BadImage as error:
        quality.add_unreadable(error, checked)
        continue
      labels = _numbered(example, numbers)
      example = example._replace(labels=labels, image=_encoded(example))
      if not quality.check(example, checked, max_pixels=self.max_pixels):
        continue
      label = list(labels) if source.multi_label else labels[0]
      values = features.encode_example({"image": example.image, "label": label})
      record = features.serialize_example(values)
      checked.bytes += len(record)
      yield record

  def complete(self, files: list[_File]) -> dict:
    """Writes TFDS's metadata and the report, and renames the folder; returns the report."""
    for leftover in self.folder.glob("*.partial"):  # from a process that was killed
      leftover.unlink()
    by_split = {split: [] for split in self.splits}
    for file in files:
      by_split[file.split].append(quality.Checked(**json.loads(file.checked.read_text())))
    for split, findings in by_split.items():
      if not any(file.examples for file in findings):
        self._refuse(split, files)
    orders = {split: _order(source) for split, source in self.splits.items()}
    report = quality.report(by_split, orders)
    for split, source in self.splits.items():
      report["splits"][split]["notes"] = list(source.notes)
    self._write_metadata(by_split)
    (self.folder / REPORT).write_text(json.dumps(report, indent=2) + "\n")
    self.folder.rename(self.target)
    for leftover in [*self.target.glob("checked-*.json"), self.target / _PLAN]:
      leftover.unlink()
    return report

  def _refuse(self, split: str, files: list[_File]):
    """Refuses a split without images; its files are made again at the next start.

    Raises:
      SourceError: always.
    """
    for file in files:
      if file.split == split:
        file.checked.unlink()
    raise SourceError(
      f'Split "{split}" has no image that can be decoded; repair its files and start again.'
    )

  def _write_metadata(self, by_split: dict[str, list[quality.Checked]]) -> None:
    import tensorflow_datasets as tfds

    infos = []
    for split, files in by_split.items():
      lengths = [file.examples for file in files]
      size = sum(file.bytes for file in files)
      infos.append(tfds.core.SplitInfo(name=split, shard_lengths=lengths, num_bytes=size))
    tfds.folder_dataset.write_metadata(
      data_dir=str(self.folder),
      features=self.features(multi_label=self.multi_label),
      split_infos=infos,
      version=VERSION,
      metadata=tfds.core.MetadataDict({DIGEST: self._digest(by_split)}),
      check_data=False,  # the check needs TensorFlow
    )

  def _digest(self, by_split: dict[str, list[quality.Checked]]) -> str:
    """A digest of the class names, and of the images and labels of each split in their order.

    It tells a dataset from another one that is prepared under the same name and version.
    """
    digest = hashlib.sha256(ascii((self.class_names, self.multi_label)).encode())
    for split, files in by_split.items():
      digest.update(ascii(split).encode())
      for file in files:
        digest.update(json.dumps([file.digests, file.labels]).encode())
    return digest.hexdigest()[:16]


def _checked_name(name: str) -> str:
  if not _NAME.fullmatch(name):
    raise SourceError(
      f'"{name}" is not a name for a dataset; use lower-case letters, digits and _, and begin with'
      " a letter."
    )
  return name


def _number_of_files(source: Source) -> int:
  """The number of files of about `_FILE_BYTES`, estimated from a sample of images."""
  sample = range(0, len(source), max(1, len(source) // _SAMPLE))
  mean = sum(_bytes(source, index) for index in sample) / len(sample)
  return min(len(source), max(1, round(mean * len(source) / _FILE_BYTES)))


def _bytes(source: Source, index: int) -> int:
  """The bytes of an image's file; 0 if it cannot be read, and is left out."""
  try:
    return len(_encoded(source[index]))
  except BadImage:
    return 0


def _numbered(example: Example, numbers: Sequence[int]) -> tuple[int, ...]:
  """The labels of an example, as the dataset numbers them.

  Args:
    example: an example of a source.
    numbers: for each class of the source, its number in the dataset.

  Raises:
    SourceError: a label is no class of the source, such as -1 in a hidden test set.
  """
  for label in example.labels:
    if not 0 <= label < len(numbers):
      raise SourceError(
        f"{example.name} has the label {label}, which is none of the {len(numbers)} classes; leave "
        "such images out: --classes keeps only those of the classes that it names."
      )
  return tuple(numbers[label] for label in example.labels)


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
