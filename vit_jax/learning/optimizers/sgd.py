"""Stochastic gradient descent with momentum."""

import dataclasses

from vit_jax.config.fields import setting
from vit_jax.config.learning import Optimizer


@dataclasses.dataclass(frozen=True)
class SGD(Optimizer):
  """SGD with momentum."""

  kind: str = setting("sgd", "SGD with momentum")
  momentum: float = setting(0.9, "decay of the sum of gradients", low=0.0, high=0.999999)

  moment = "trace"

  def precondition(self):
    """The decaying sum of the gradients."""
    import optax  # slow, and reading settings does not need it

    return optax.trace(self.momentum)
