"""Images that are trained on and scored: refused, unless a setting allows it."""

import logging
from typing import NamedTuple

from vit_jax.config import ConfigError, Dataset
from vit_jax.data import overlap
from vit_jax.data.sources import Source

_log = logging.getLogger(__name__)


class Use(NamedTuple):
  """A dataset of a run.

  Attributes:
    key: the setting that names it.
    dataset: what the setting is.
    source: it, opened.
  """

  key: str
  dataset: Dataset
  source: Source

  def __str__(self) -> str:
    return f"{self.key} ({in_words(self.dataset)})"


def check(trained: Use, scored: Use, *, allow: bool):
  """Refuses images that two uses have in common; `allow` (config.data.allow_overlap) warns only.

  Raises:
    ConfigError: there are some.
  """
  found = overlap.shared(trained.source, scored.source)
  if not found:
    return
  said = f"{trained} and {scored} have {found.in_words()} in common"
  if not allow:
    raise ConfigError(
      f"{said}, which would be trained on and scored; give parts that have none, such as [:90%] "
      "and [90%:], or set config.data.allow_overlap=True."
    )
  _log.warning("%s; config.data.allow_overlap=True allows it.", said)


def in_words(dataset: Dataset) -> str:
  """A dataset as source and split."""
  return " ".join(filter(None, [dataset.source, dataset.split]))
