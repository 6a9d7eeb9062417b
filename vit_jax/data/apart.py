"""Refuses a run that evaluates on images of its training data, unless a setting allows it."""

import dataclasses
import logging
import os
from collections.abc import Iterable
from typing import NamedTuple

from vit_jax.config import ConfigError, Dataset
from vit_jax.data import overlap
from vit_jax.data.history import History, Trained
from vit_jax.data.sources import Source, absolute

_log = logging.getLogger(__name__)


class Use(NamedTuple):
  """A dataset of a run.

  Attributes:
    key: the name of its setting, such as "config.data.train".
    dataset: the value of the setting.
    source: the opened source.
    changed: whether the source held other images when weights were trained on it.
  """

  key: str
  dataset: Dataset
  source: Source
  changed: bool = False

  def __str__(self) -> str:
    return f"{self.key} ({in_words(self.dataset)})"


def record(uses: Iterable[Use]) -> History:
  """What weights that are trained on these datasets are to remember."""
  return tuple(Trained(anywhere(use.dataset), use.source.identity) for use in uses)


def anywhere(dataset: Dataset) -> Dataset:
  """The settings that choose the images of a dataset, for any current directory."""
  chosen = {field.name: getattr(dataset, field.name) for field in dataclasses.fields(Dataset)}
  exclude = dataset.exclude and os.path.abspath(os.path.expanduser(dataset.exclude))
  return Dataset(**chosen | {"source": absolute(dataset.source), "exclude": exclude})


def check(trained: Iterable[Use], scored: Use, *, allow: bool):
  """Refuses data that is both trained on and scored; with `allow`, only logs a warning.

  Args:
    trained: the datasets that are trained on.
    scored: the data to evaluate on.
    allow: config.data.allow_overlap.

  Raises:
    ConfigError: there are such images, and `allow` is False.
  """
  for use in trained:
    found = overlap.shared(use.source, scored.source)
    if not found:
      if use.changed and overlap.places(use.source) & overlap.places(scored.source):
        _log.warning("%s has changed since, so images of it may be in %s.", use, scored)
      continue
    said = f"{use} and {scored} have {found.in_words()} in common"
    if not allow:
      raise ConfigError(
        f"{said}; evaluate on images that are not trained on, such as the parts [:90%] and "
        "[90%:], or set config.data.allow_overlap=True."
      )
    _log.warning("%s; config.data.allow_overlap=True allows it.", said)


def in_words(dataset: Dataset) -> str:
  """The source and the split of a dataset, as text."""
  return " ".join(filter(None, [dataset.source, dataset.split]))
