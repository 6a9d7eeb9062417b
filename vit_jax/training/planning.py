"""What is known of a run before it starts; recipes and costs need it, a run itself does not."""

from vit_jax.config import Config
from vit_jax.config.resolve import Facts
from vit_jax.data.sources import SourceError
from vit_jax.recipes.pretraining import examples_of
from vit_jax.training.facts import of_data, of_start
from vit_jax.training.run import open_training


def before_devices(config: Config) -> Facts:
  """What the weights and the data tell; of data that is missing, its size, if a table has it."""
  try:
    training, _ = open_training(config)
  except SourceError:
    examples = examples_of(config)
    return {**of_start(), **({"images": lambda config: examples} if examples else {})}
  return {**of_start(), **of_data(training, config)}
