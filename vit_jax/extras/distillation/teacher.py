"""The teacher of a distillation: its weights, and their classes beside those of the data."""

import dataclasses
import functools
from collections.abc import Sequence

from vit_jax import weights
from vit_jax.config import ConfigError, RunError, Size, in_pixels
from vit_jax.data import classes
from vit_jax.inference import model as inference
from vit_jax.inference.model import LoadedModel
from vit_jax.storage.base import raised_as
from vit_jax.storage.paths import Path, path_of
from vit_jax.training import fingerprint


@dataclasses.dataclass(frozen=True, eq=False)
class Teacher:
  """A model with a head.

  Attributes:
    place: where its weights were read.
    loaded: the model, whose parameters are for pixels from -1 to 1 whatever the mean and deviation
      of its weights.
  """

  place: str
  loaded: LoadedModel

  @functools.cached_property
  def digest(self) -> str:
    """A checksum of the parameters, the same in every format of weights."""
    return fingerprint.digest_of(self.loaded.params)

  @property
  def class_count(self) -> int:
    """Outputs of the head."""
    return self.loaded.module.num_classes

  def check_count(self, classes: int):
    """Checks that the head has as many outputs as the training data has classes.

    Raises:
      ConfigError: it has not.
    """
    if classes != self.class_count:
      raise ConfigError(
        f"config.objective.teacher={self.place} has {self.class_count:,} classes, and the training "
        f"data has {classes:,}; give a teacher of the same classes."
      )

  def for_images(self, size: Size) -> LoadedModel:
    """The model, if it is for images of this size.

    Raises:
      ConfigError: it is for images of another size.
    """
    own = self.loaded.card.image_size
    if own not in (0, size):
      raise ConfigError(
        f"config.objective.teacher={self.place} is for images of {in_pixels(own)} pixels, and the "
        f"student's have {in_pixels(size)}; give --config.data.image_size={in_pixels(own, 'x')}."
      )
    try:
      return self.loaded.at_size(size)
    except ValueError as error:
      raise ConfigError(f"config.objective.teacher={self.place}: {error}") from error

  def outputs_for(self, names: Sequence[str]) -> classes.HeadOrder:
    """For each class of the data, the output of the head.

    Args:
      names: of the classes of the data.

    Raises:
      ConfigError: the head has another number of classes, or classes of other names.
    """
    self.check_count(len(names))
    try:
      return classes.of_head("", self.loaded.card.class_names, names)
    except classes.OtherClasses as error:
      raise ConfigError(
        f"config.objective.teacher={self.place} is of other classes than the training data: "
        f"{error}. Give a teacher of the same classes; or, if they are the same under other names, "
        "the teacher's output for each class of the data with --config.objective.outputs='(2, 0, "
        "1)', or --config.objective.outputs='()' for the data's own order."
      ) from error


# The teacher that was read last, by its path, with the versions of its files.
_last: dict[Path, tuple[tuple, Teacher]] = {}


def read(place: str, digest: str = "") -> Teacher:
  """Reads the weights at `place`, as config.init_from names them, again only if they have changed.

  Args:
    place: where they are.
    digest: of the teacher that is wanted, if known: if it was read last, it is returned whatever
      lies there now, as a run that teaches may go on.

  Raises:
    ConfigError: they cannot be read, are not of a model of this project, or have no head of
      classes.
  """
  words = lambda error: f"config.objective.teacher={place}: {error}"
  with raised_as(ConfigError, words, ValueError, OSError, RunError):
    known = _read(place, digest)
  if not known.loaded.classifies:
    raise ConfigError(
      f"config.objective.teacher={place}: these weights {known.loaded.card.no_classes()}; "
      "fine-tune them first."
    )
  return known


def _read(place: str, digest: str) -> Teacher:
  path = path_of(place).absolute()
  versions, teacher = _last.get(path, ((), None))
  if teacher and digest == teacher.digest:
    return teacher
  now = weights.versions(place)
  if not teacher or now != versions:
    _last.clear()
    teacher = Teacher(place, inference.read_model(place))
    _last[path] = now, teacher
  return teacher
