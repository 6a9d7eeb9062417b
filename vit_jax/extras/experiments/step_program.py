"""The training step of a recipe on its own: built without data, run on random images."""

import dataclasses

import jax
import numpy as np

from vit_jax import recipes
from vit_jax.config import Config
from vit_jax.config.fields import Labels
from vit_jax.config.resolve import check_known
from vit_jax.devices import mesh as meshes
from vit_jax.evaluation.evaluations import Evaluations
from vit_jax.extras.experiments.facts import UNKNOWN_LENGTH, decided
from vit_jax.learning import train_step
from vit_jax.training import run as runs
from vit_jax.training.facts import of_devices, of_start
from vit_jax.training.run import OpenedData, Run


@dataclasses.dataclass(frozen=True)
class DatasetSpec:
  """Stands in for training data that is never read: length, classes and kind of labels."""

  length: int
  class_names: tuple[str, ...]
  multi_label: bool

  def __len__(self) -> int:
    return self.length


def planned(config: Config, devices) -> Run:
  """A run on `devices` whose data is never read.

  Accumulation that depends on device memory is 1, and a number of classes that depends on the data
  is 1.

  Raises:
    ConfigError: the batch or the mesh does not fit the devices, or a setting follows from data.
  """
  images = recipes.examples_of(config)
  data = {"labels": lambda config: Labels(), "class_shares": lambda config: ()}
  if images:
    data["images"] = lambda config: images
  config = decided(config, {**of_start(), **of_devices(devices), **data})
  check_known(config, ("accumulation",))
  imagined = DatasetSpec(
    length=images or UNKNOWN_LENGTH,
    class_names=tuple(map(str, range(config.model.num_classes * config.objective.needs_labels))),
    multi_label=config.loss.kind == "sigmoid",
  )
  return runs.make(config, OpenedData(imagined, Evaluations(), ()), devices)


def random_batch(run: Run) -> dict:
  """A batch on the devices: random images, and zeros for everything else, such as labels."""
  rng = np.random.default_rng(0)
  views = run.reader.objective.views(run.config.data)
  arrays = {}
  for name, x in run.abstract_batch().items():
    array = np.full(x.shape, name == "mask", x.dtype)
    if name in views:
      array = rng.integers(0, 256, x.shape, x.dtype)
    arrays[name] = meshes.place(array, x.sharding)
  return arrays


def stepper(run: Run, compiled):
  """A function that runs a compiled training step once, to its end, and returns its metrics."""
  batch = random_batch(run)
  current = train_step.create_state(run.init, run.abstract)

  def step():
    nonlocal current
    current, metrics = jax.block_until_ready(compiled(current, batch))
    return metrics

  return step
