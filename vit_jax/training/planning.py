"""The facts of a run before it starts, for recipes and costs; a run itself does not need them."""

from vit_jax.config import Config
from vit_jax.config.resolve import Facts
from vit_jax.data.sources import SourceError
from vit_jax.recipes.pretraining import examples_of
from vit_jax.training.facts import of_data, of_start
from vit_jax.training.run import open_training


def before_devices(config: Config) -> Facts:
  """The facts of the weights and of the data; for missing data only its size, if it is known."""
  facts = of_start()
  try:
    training, _ = open_training(config)
  except SourceError:
    examples = examples_of(config)
    if examples:
      facts["images"] = lambda config: examples
    return facts
  return {**facts, **of_data(training, config)}
