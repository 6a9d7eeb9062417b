"""The objective of a run, by its name in config.objective."""

from vit_jax.config import Config
from vit_jax.learning.objective import Objective
from vit_jax.registry import OBJECTIVES


def configured(config: Config, model) -> Objective:
  """The objective of a run with this config; `model`, a Flax module, is its network.

  Raises:
    ConfigError: the settings do not suit the objective.
  """
  return OBJECTIVES[config.objective].of_run(config, model)
