"""Records the datasets that weights were trained on, so that their images are not scored later.

The record is stored with the weights.
"""

import dataclasses
import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from vit_jax.config import Dataset, to_dict
from vit_jax.config.parsing import dataset_of
from vit_jax.data import sources

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


def record(datasets: Iterable) -> History:
  """The history of weights that are trained on these `NamedDataset`s."""
  return tuple(Trained(anywhere(named.dataset), named.source.identity) for named in datasets)


def anywhere(dataset: Dataset) -> Dataset:
  """The settings that choose the images of a dataset, with absolute paths."""
  chosen = {field.name: getattr(dataset, field.name) for field in dataclasses.fields(Dataset)}
  exclude = dataset.exclude and os.path.abspath(os.path.expanduser(dataset.exclude))
  return Dataset(**chosen | {"source": sources.anywhere(dataset.source), "exclude": exclude})


def written(history: Iterable[Trained]) -> list[dict[str, Any]]:
  """The history for JSON, without settings at their default."""
  return [_changed(dataset) | {"identity": identity} for dataset, identity in history]


def _changed(dataset: Dataset) -> dict[str, Any]:
  """The settings that are not at their default."""
  defaults = to_dict(Dataset())
  return {key: value for key, value in to_dict(dataset).items() if value != defaults[key]}


def read_history(values: Any) -> History:
  """The inverse of `written`; the values are not trusted.

  Raises:
    ValueError: the values are not a history.
  """
  if not isinstance(values, list) or len(values) > MAX_DATASETS:
    raise ValueError(f"its trained_on is not a list of at most {MAX_DATASETS:,} datasets")
  return tuple(map(_read, values))


def _read(values: Any) -> Trained:
  if not isinstance(values, Mapping) or not isinstance(values.get("identity"), str):
    raise ValueError("its trained_on has a dataset without identity")
  chosen = {key: value for key, value in values.items() if key != "identity"}
  return Trained(dataset_of(chosen, "trained_on"), values["identity"])
