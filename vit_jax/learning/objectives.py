"""All objectives."""

from vit_jax.config import Config
from vit_jax.learning.classification import Classification
from vit_jax.learning.objective import Objective


def configured(config: Config, model) -> Objective:
  """The objective of a run with this config; `model`, a Flax module, is its network."""
  return Classification(model, config.loss, config.data.mixup)
