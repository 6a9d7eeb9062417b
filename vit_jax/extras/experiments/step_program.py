"""The step of a recipe as a program on its own: planned without data, run on random images."""

import dataclasses

import jax
import numpy as np

from vit_jax import recipes
from vit_jax.config import Config
from vit_jax.config.facts import Labels
from vit_jax.config.resolve import check_known
from vit_jax.devices import mesh as meshes
from vit_jax.evaluation.evaluations import Evaluations
from vit_jax.extras.experiments.facts import UNKNOWN_LENGTH, decided
from vit_jax.learning import state
from vit_jax.training import run as runs
from vit_jax.training.facts import of_devices, of_start
from vit_jax.training.run import OpenedData, Run


@dataclasses.dataclass(frozen=True)
class DatasetSpec:
  """Replaces training data, which is never read: its length, its classes, its kind of labels."""

  length: int
  class_names: tuple[str, ...]
  multi_label: bool

  def __len__(self) -> int:
    return self.length


def planned(config: Config, devices) -> Run:
  """The plan of a run on `devices`, whose data is never read.

  The parts of a batch that are left to the memory of devices are one, and so are classes that are
  left to the data.

  Raises:
    ConfigError: the batch or the mesh does not fit the devices, or a setting follows from data.
  """
  images = recipes.examples_of(config)
  data = {"labels": lambda config: Labels()}
  data |= {"images": lambda config: images} if images else {}
  config = decided(config, {**of_start(), **of_devices(devices), **data})
  check_known(config, ("accumulation",))
  imagined = DatasetSpec(
    length=images or UNKNOWN_LENGTH,
    class_names=tuple(map(str, range(config.model.num_classes * config.objective.needs_labels))),
    multi_label=config.loss.kind == "sigmoid",
  )
  return runs.make(config, OpenedData(imagined, Evaluations(), ()), devices)


def random_batch(run: Run) -> dict:
  """Random images, with zeros for all else, such as labels of the first class, on the devices."""
  rng, arrays, views = np.random.default_rng(0), {}, run.reader.objective.views(run.config.data)
  for name, x in run.abstract_batch().items():
    array = np.full(x.shape, name == "mask", x.dtype)
    if name in views:
      array = rng.integers(0, 256, x.shape, x.dtype)
    arrays[name] = meshes.place(array, x.sharding)
  return arrays


def stepper(run: Run, compiled):
  """A function that runs a compiled training step once, to its end, and returns its metrics."""
  batch = random_batch(run)
  current = state.create(run.init, run.abstract)

  def step():
    nonlocal current
    current, metrics = jax.block_until_ready(compiled(current, batch))
    return metrics

  return step
