"""Opens sources according to a run's settings."""

import dataclasses

from vit_jax.config import ConfigError, Data, Dataset
from vit_jax.data import sources
from vit_jax.data.apart import Use


@dataclasses.dataclass(frozen=True)
class Opener:
  """Opens the datasets of a run, with the settings that they share.

  Attributes:
    num_classes: number of classes of the "synthetic" source.
    sampling: how subsets and parts of folders are drawn, as config.data.sampling.
    threads: number of threads that read labels.
    allow_overlap: whether the same image may be used for training and evaluation.
  """

  num_classes: int
  sampling: str
  threads: int
  allow_overlap: bool

  def source(self, dataset: Dataset) -> sources.Source:
    """Opens one source; drops its excluded examples first, and then takes the subset.

    Raises:
      SourceError: the data does not exist.
    """
    source = sources.open_source(
      dataset.source,
      split=dataset.split,
      image_key=dataset.image_key,
      label_key=dataset.label_key,
      num_classes=self.num_classes,
      sampling=self.sampling,
    )
    if dataset.exclude:
      source = sources.Remaining(source, dataset.exclude)
    if dataset.subset:
      source = sources.Subset(source, dataset.subset, sampling=self.sampling)
    return source

  def use(self, key: str, dataset: Dataset) -> Use:
    """Opens one source like `source`; messages name its setting, `key`."""
    try:
      return Use(key, dataset, self.source(dataset))
    except sources.SourceError as error:
      raise sources.SourceError(f"{key}: {error}") from error

  def labelled(self, key: str, dataset: Dataset) -> Use:
    """Opens one source like `use`, and requires labels.

    Raises:
      ConfigError: the setting says to read the dataset without labels.
      SourceError: the data does not exist.
    """
    if not dataset.label_key:
      raise ConfigError(
        f"{key}.label_key is empty, so these images have no labels, but labels are needed here; "
        "leave it out for a folder of classes (DIR/class/image.jpg), or name the TFDS feature that "
        "holds the label."
      )
    return self.use(key, dataset)


def of_run(data: Data, num_classes: int) -> Opener:
  """The opener of a run's datasets; the "synthetic" source gets `num_classes`."""
  return Opener(
    num_classes=num_classes,
    sampling=data.sampling,
    threads=data.threads,
    allow_overlap=data.allow_overlap,
  )
