"""The main program in this process: from the words of a command line to the end of a run."""

import pathlib

from vit_jax import launch, recipes
from vit_jax.config import recipe_file
from vit_jax.devices.hosts import Hosts

SMALL = (
  "--config.model.depth=1",
  "--config.model.width=8",
  "--config.model.mlp_dim=8",
  "--config.model.heads=2",
  "--config.batch_size=32",
  "--config.schedule.warmup.steps=1",
  "--config.log_every.steps=1",
  "--config.evaluate_every.steps=0",
  "--config.report=False",
)


class StopAfter:
  """A stop request that comes after some steps of this command; None: never."""

  def __init__(self, steps: int | None = None):
    self._steps = steps
    self.done = 0

  def agreed(self):
    self.done += 1
    return self.done == self._steps

  def alone(self):
    return False

  def hold(self):
    """Does nothing, because no signal comes."""


def run(
  folder: pathlib.Path,
  *words: str,
  mode: str = "train",
  stop: StopAfter | None = None,
  recipe: str = "configs/vit_digits.py",
) -> bool:
  """A small run with the words of a command line, on the digits if the recipe or the words say so.

  Returns whether it reached its end.
  """
  words = [*SMALL, *words]
  config = recipes.resolve(recipe, words)
  given = frozenset(recipe_file.split_settings(words)[0])
  stop = stop or StopAfter()
  return launch.launch(config, folder, stop, mode=mode, hosts=Hosts("", 0, -1), given=given)
