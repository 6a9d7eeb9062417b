"""What weights were trained on. It is kept with the weights, so that no such image is scored."""

import dataclasses
import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from vit_jax.config import Dataset, to_dict
from vit_jax.config.parsing import dataset_of
from vit_jax.data import sources

MAX_DATASETS = 10_000  # that are read


class Trained(NamedTuple):
  """A dataset that weights were trained on.

  Attributes:
    dataset: the settings that choose its images; folders and files by absolute paths.
    identity: of the source at that time.
  """

  dataset: Dataset
  identity: str


History = tuple[Trained, ...]  # in the order of training


def record(datasets: Iterable) -> History:
  """What weights that are trained on these `NamedDataset`s are to remember."""
  return tuple(Trained(anywhere(named.dataset), named.source.identity) for named in datasets)


def anywhere(dataset: Dataset) -> Dataset:
  """The settings that choose the images of a dataset, for any current directory."""
  chosen = {field.name: getattr(dataset, field.name) for field in dataclasses.fields(Dataset)}
  exclude = dataset.exclude and os.path.abspath(os.path.expanduser(dataset.exclude))
  return Dataset(**chosen | {"source": sources.anywhere(dataset.source), "exclude": exclude})


def written(history: Iterable[Trained]) -> list[dict[str, Any]]:
  """The history for JSON, without settings that have their default."""
  usual = to_dict(Dataset())
  chosen = lambda values: {key: value for key, value in values.items() if value != usual[key]}
  return [chosen(to_dict(dataset)) | {"identity": identity} for dataset, identity in history]


def read_history(values: Any) -> History:
  """Undoes `written`; the values may come from a stranger.

  Raises:
    ValueError: they are no history.
  """
  if not isinstance(values, list) or len(values) > MAX_DATASETS:
    raise ValueError(f"its trained_on is not a list of at most {MAX_DATASETS:,} datasets")
  return tuple(map(_read, values))


def _read(values: Any) -> Trained:
  identity = values.get("identity") if isinstance(values, Mapping) else None
  if not isinstance(identity, str):
    raise ValueError("its trained_on has a dataset without identity")
  chosen = {key: value for key, value in values.items() if key != "identity"}
  return Trained(dataset_of(chosen, "trained_on"), identity)
