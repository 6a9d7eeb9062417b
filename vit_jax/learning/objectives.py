"""The objectives that there are."""

from vit_jax.config import Config
from vit_jax.learning.classification import Classification
from vit_jax.learning.objective import Objective


def configured(config: Config, model) -> Objective:
  """What a run with this config learns, with `model`, a Flax module, as its network."""
  return Classification(model, config.loss, config.data.mixup)
