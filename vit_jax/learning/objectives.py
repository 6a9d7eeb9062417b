"""All objectives, by their names in config.objective."""

from vit_jax.config import Config
from vit_jax.learning.classification import Classification
from vit_jax.learning.masked_patches import MaskedPatches
from vit_jax.learning.objective import Objective

OBJECTIVES = {"classification": Classification, "masked_patches": MaskedPatches}


def configured(config: Config, model) -> Objective:
  """The objective of a run with this config; `model`, a Flax module, is its network.

  Raises:
    ConfigError: the settings do not suit the objective.
  """
  return OBJECTIVES[config.objective].of_run(config, model)
