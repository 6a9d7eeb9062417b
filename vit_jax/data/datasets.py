"""The datasets of a run, opened as its settings say, and those that weights were trained on.

These are kept with the weights, so that no such image is scored. A run that evaluates on images of
its training data is refused, unless a setting allows it. The same file is the same image, whatever
path leads to it; so is the same record of a file of records. No image is read for this;
vit-jax dedup finds copies under other names.
"""

import collections
import contextlib
import dataclasses
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from vit_jax.config import ConfigError, Data, Dataset, to_dict
from vit_jax.config.parsing import dataset_of
from vit_jax.data import by_label, byte_ranges, sources
from vit_jax.data.order import MixedSource
from vit_jax.data.sources import Source
from vit_jax.data.sources.base import Block
from vit_jax.process.progress import SILENT, NoProgress, Progress
from vit_jax.process.text import aligned, first_difference, one_line

LEARNERS = "the weights or their teacher were"  # whose history a run has
MAX_DATASETS = 10_000  # most datasets in a history that is read


class Trained(NamedTuple):
  """A dataset that weights were trained on.

  Attributes:
    dataset: the settings that choose its images, with absolute paths of folders and files.
    identity: the identity of the source at that time.
  """

  dataset: Dataset
  identity: str


History = tuple[Trained, ...]  # in the order of training


def trained_history(datasets: Iterable) -> History:
  """The history of weights that are trained on these `NamedDataset`s."""
  return tuple(Trained(for_any_folder(named.dataset), named.source.identity) for named in datasets)


def for_any_folder(dataset: Dataset) -> Dataset:
  """The settings that choose the images of a dataset, with absolute paths."""
  chosen = {field.name: getattr(dataset, field.name) for field in dataclasses.fields(Dataset)}
  exclude = dataset.exclude and os.path.abspath(os.path.expanduser(dataset.exclude))
  return Dataset(**chosen | {"source": sources.anywhere(dataset.source), "exclude": exclude})


def history_as_dicts(history: Iterable[Trained]) -> list[dict[str, Any]]:
  """The history for JSON, without settings at their default."""
  return [_changed(dataset) | {"identity": identity} for dataset, identity in history]


def _changed(dataset: Dataset) -> dict[str, Any]:
  """The settings that are not at their default."""
  defaults = to_dict(Dataset())
  return {key: value for key, value in to_dict(dataset).items() if value != defaults[key]}


def read_history(values: Any) -> History:
  """The inverse of `history_as_dicts`; the values are not trusted.

  Raises:
    ValueError: the values are not a history.
  """
  if not isinstance(values, list) or len(values) > MAX_DATASETS:
    raise ValueError(f"its trained_on is not a list of at most {MAX_DATASETS:,} datasets")
  return tuple(map(_trained, values))


def _trained(values: Any) -> Trained:
  if not isinstance(values, Mapping) or not isinstance(values.get("identity"), str):
    raise ValueError("its trained_on has a dataset without identity")
  chosen = {key: value for key, value in values.items() if key != "identity"}
  return Trained(dataset_of(chosen, "trained_on"), values["identity"])


_log = logging.getLogger(__name__)


class NamedDataset(NamedTuple):
  """A dataset of a run.

  Attributes:
    key: the name of its setting, such as "config.data.train".
    dataset: the value of the setting.
    source: the opened source.
    changed: whether the source has changed since weights were trained on it.
  """

  key: str
  dataset: Dataset
  source: sources.Source
  changed: bool = False

  def __str__(self) -> str:
    return f"{self.key} ({in_words(self.dataset)})"


class Training(NamedTuple):
  """The training data of a run.

  Attributes:
    datasets: the datasets; several for a mix. The same classes have the order of the first.
    source: their examples, one dataset after the other.
    parts: the number of examples and the weight of each dataset.
  """

  datasets: tuple[NamedDataset, ...]
  source: sources.Source
  parts: tuple[MixedSource, ...]

  def __str__(self) -> str:
    return " and ".join(named.dataset.source for named in self.datasets)


@dataclasses.dataclass(frozen=True)
class Opener:
  """Opens the datasets of a run, with the settings that they share.

  Attributes:
    max_pixels: larger images count as broken, as config.data.max_pixels.
    threads: number of threads that read labels.
    allow_overlap: whether the same image may be used for training and evaluation.
    progress: shows what is opened.
    opened: the datasets that `open` has opened so far, in order.
  """

  max_pixels: int
  threads: int
  allow_overlap: bool
  progress: Progress | NoProgress = SILENT
  opened: list[NamedDataset] = dataclasses.field(default_factory=list)

  def source(self, dataset: Dataset) -> sources.Source:
    """Opens one source, without its excluded examples, and takes the subset of the rest.

    Raises:
      SourceError: the data does not exist.
    """
    source = sources.open_source(
      dataset.source,
      split=dataset.split,
      image_key=dataset.image_key,
      label_key=dataset.label_key,
      max_pixels=self.max_pixels,
    )
    if dataset.exclude:
      source = sources.Remaining(source, dataset.exclude)
    if dataset.subset:
      source = sources.Subset(source, dataset.subset)
    return source

  def open(self, key: str, dataset: Dataset) -> NamedDataset:
    """Opens one source like `source`; messages name its setting, `key`."""
    self.progress.doing(f"opening {key} ({in_words(dataset)})")
    try:
      self.opened.append(NamedDataset(key, dataset, self.source(dataset)))
    except sources.SourceError as error:
      raise type(error)(f"{key}: {error}") from error
    return self.opened[-1]

  def labelled(self, key: str, dataset: Dataset) -> NamedDataset:
    """Opens one source like `open`, and requires labels.

    Raises:
      ConfigError: the setting says to read the dataset without labels.
      SourceError: the data does not exist.
    """
    if not dataset.label_key:
      raise ConfigError(
        f"{key}.label_key is empty, so these images have no labels, but labels are needed here; "
        "leave it out, or name the feature that holds the label."
      )
    return self.open(key, dataset)

  def earlier(
    self, history: History, trained: Iterable[NamedDataset] = ()
  ) -> tuple[NamedDataset, ...]:
    """Opens the datasets that weights, or a teacher, were trained on; a warning names missing ones.

    Data that was moved is not missing: another dataset, in `history` or in `trained`, those to
    train on now, has the same names and labels (`Source.identity`). Pixels are not compared.
    """
    there = []
    lost = []
    for dataset, identity in history:
      try:
        source = self.source(dataset)
      except (ConfigError, OSError) as error:
        lost.append((f"{in_words(dataset)} ({error})", identity))
        continue
      changed = source.identity != identity
      there.append(NamedDataset(f"What {LEARNERS} trained on", dataset, source, changed))
    known = {named.source.identity for named in (*trained, *there)}
    missing = [said for said, identity in lost if identity not in known]
    if missing:
      _log.warning(
        "It cannot be checked whether images are scored that %s trained on: %s",
        LEARNERS,
        "; ".join(missing),
      )
    return tuple(there)

  def training(self, data: Data, *, labelled: bool) -> Training:
    """Opens all training data.

    Args:
      data: the run's settings.
      labelled: whether labels are needed; if so, all sources must have the same classes.

    Raises:
      ConfigError: labels are missing, or sources of a mix have different classes.
      SourceError: the data does not exist.
    """
    open_one = self.labelled if labelled else self.open
    datasets = tuple(open_one(key, dataset) for key, dataset in data.training().items())
    opened = [named.source for named in datasets]
    datasets = tuple(
      named._replace(source=source)
      for named, source in zip(datasets, sources.in_one_order(opened), strict=True)
    )
    if labelled:
      check_same_classes(datasets)
    weights = [dataset.weight for dataset in data.mixed().values()] or [1.0]
    parts = tuple(map(MixedSource, map(len, opened), weights))
    if len(opened) == 1:
      return Training(datasets, opened[0], parts)
    return Training(datasets, sources.Mixed(opened), parts)


def opener_of(data: Data, progress: Progress | NoProgress = SILENT) -> Opener:
  """The opener of a run's datasets; also sets up the disk cache for buckets."""
  byte_ranges.keep(data.bucket_cache)
  return Opener(data.max_pixels, data.threads, data.allow_overlap, progress)


def check_same_classes(datasets: Sequence[NamedDataset]):
  """Checks that all datasets have the same classes and the same kind of labels as the first.

  Raises:
    ConfigError: names the dataset and the first class that differs.
  """
  first, *others = datasets
  names = first.source.class_names
  for other in others:
    if tuple(other.source.class_names) != tuple(names):
      raise ConfigError(
        f"{other} has {len(other.source.class_names)} classes that are not the {len(names)} of "
        f"{first}: {first_difference(other.source.class_names, names, first.key)}; classification "
        "needs sources with the same classes."
      )
    if other.source.multi_label != first.source.multi_label:
      several, single = (other, first) if other.source.multi_label else (first, other)
      raise ConfigError(
        f"Images of {several} have any number of labels, and those of {single} exactly one; "
        "classification needs sources with the same kind of labels."
      )


def class_balanced(training: Training, *, threads: int) -> tuple[MixedSource, ...]:
  """The parts of the training data, with the rows of each class; reads the labels of all images.

  Raises:
    ConfigError: images of a source have no label, or any number of labels.
    SourceError: labels cannot be read.
  """
  return tuple(
    part._replace(classes=_rows_of_classes(named, threads))
    for named, part in zip(training.datasets, training.parts, strict=True)
  )


def _rows_of_classes(named: NamedDataset, threads: int) -> tuple[np.ndarray, ...]:
  with _labelled_once(named, "config.data.class_balanced=True"):
    return by_label.rows_of_classes(named.source, threads=threads)


def class_shares(training: Training, *, threads: int) -> list[float]:
  """The share of each class in the images that a run draws; reads the labels of all images.

  Raises:
    ConfigError, SourceError: as `class_balanced`.
  """
  weights = sum(part.weight for part in training.parts)
  shares = np.zeros(len(training.source.class_names))
  for named, part in zip(training.datasets, training.parts, strict=True):
    with _labelled_once(named, "config.objective.class_weights"):
      counts = by_label.counts_of_classes(named.source, threads=threads)
    shares += part.weight / weights * counts / counts.sum()
  return shares.tolist()


@contextlib.contextmanager
def _labelled_once(named: NamedDataset, setting: str) -> Iterator[None]:
  """Around reading the one label of each image; `setting` needs them.

  Raises:
    ConfigError: images have no label, or any number of labels.
    SourceError: names the dataset too.
  """
  source = named.source
  if source.multi_label or not source.class_names:
    have = "any number of labels"
    if not source.class_names:
      have = "no labels"
    raise ConfigError(
      f"{setting} needs images with one label each, and those of {named} have {have}; leave it out."
    )
  try:
    yield
  except sources.SourceError as error:
    raise sources.SourceError(f"{named}: {error}.") from error


def in_words(dataset: Dataset) -> str:
  """The settings that choose the images of a dataset, as text."""
  given = {"subset": dataset.subset, "exclude": dataset.exclude}
  limits = [f"{key}={value}" for key, value in given.items() if value]
  return " ".join(filter(None, [dataset.source, dataset.split, *limits]))


def summary_table(datasets: Sequence[NamedDataset]) -> str:
  """One line per dataset, with its numbers of images and classes; then the notes."""
  rows = [["data", "source", "images", "classes"]]
  for named in datasets:
    name = named.key.removeprefix("config.")
    images = f"{len(named.source):,}"
    classes = len(named.source.class_names)
    rows.append([name, in_words(named.dataset), images, f"{classes:,}" if classes else "-"])
  return "\n".join([aligned(rows, left=(0, 1)), *map(one_line, notes(datasets))])


def notes(datasets: Sequence[NamedDataset]) -> list[str]:
  """Notes for the user on the datasets, such as files that are left out; each once."""
  said = [note for named in datasets for note in named.source.notes]
  if any(named.source.distant for named in datasets):
    said.append(byte_ranges.kept())
  return list(filter(None, dict.fromkeys(said)))


_ENOUGH = 10_000_000  # shared images; counting stops there


def check_leakage(trained: Iterable[NamedDataset], scored: NamedDataset, *, allow: bool):
  """Refuses to score images that are trained on; with `allow`, only logs a warning.

  Args:
    trained: the datasets to train on.
    scored: the dataset to evaluate on.
    allow: config.data.allow_overlap.

  Raises:
    ConfigError: the datasets share images, and `allow` is False.
  """
  for named in trained:
    common = shared_images(named.source, scored.source)
    if not common:
      if named.changed and _meet(named, scored):
        _log.warning("%s has changed since, so images of it may be in %s.", named, scored)
      continue
    message = f"{named} and {scored} have {common.in_words()} in common"
    if not allow:
      raise ConfigError(
        f"{message}; evaluate on images that are not trained on, such as the parts [:90%] and "
        "[90%:], or set config.data.allow_overlap=True."
      )
    _log.warning("%s; config.data.allow_overlap=True allows it.", message)


def _meet(first: NamedDataset, second: NamedDataset) -> bool:
  """Whether the settings name the same source, or the images lie in the same folder or file.

  The split of a file may have been another one.
  """
  if sources.anywhere(first.dataset.source) == sources.anywhere(second.dataset.source):
    return True
  return not _by_place(first.source).keys().isdisjoint(_by_place(second.source))


class Shared(NamedTuple):
  """The images that two sources have in common.

  Attributes:
    images: the number of images.
    example: the name of one of them.
  """

  images: int
  example: str

  def in_words(self) -> str:
    """As text: "5 images (such as ...)"."""
    count = f"{self.images:,}"
    if self.images >= _ENOUGH:
      count = f"at least {_ENOUGH:,}"
    return f"{count} image{'s' * (self.images != 1)} (such as {self.example!r})"


def shared_images(first: Source, second: Source) -> Shared | None:
  """The images that both sources have; None if there are none.

  Compares only the folders and files that both sources use, not all images of a large dataset.
  Stops counting at `_ENOUGH`.
  """
  theirs = _by_place(second)
  count = 0
  example = ""
  for place, blocks in _by_place(first).items():
    if place in theirs and count < _ENOUGH:
      items, indices = _held(blocks)
      others, _ = _held(theirs[place])
      common, at, _ = np.intersect1d(items, others, return_indices=True)
      if len(common):
        example = example or first.name(int(indices[at[0]]))
        count += len(common)
  if not count:
    return None
  return Shared(count, example)


def _by_place(source: Source) -> dict[str, list[Block]]:
  """The blocks of a source, by the folder or file that holds their images."""
  places = collections.defaultdict(list)
  for block in source.blocks():
    places[block.place].append(block)
  return places


def _held(blocks: list[Block]) -> tuple[np.ndarray, np.ndarray]:
  """The items of some blocks that their source contains, and their indices in the source."""
  items = np.concatenate([np.asarray(block.items) for block in blocks])
  indices = np.concatenate([block.index(np.asarray(block.rows)) for block in blocks])
  return items[indices >= 0], indices[indices >= 0]
