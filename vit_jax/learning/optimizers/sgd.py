"""Stochastic gradient descent with momentum."""

import dataclasses
from typing import ClassVar

from vit_jax.config import Optimizer
from vit_jax.config.fields import name_of_kind, setting


@dataclasses.dataclass(frozen=True)
class SGD(Optimizer):
  """SGD with momentum."""

  kind: str = name_of_kind("sgd", "SGD with momentum")
  momentum: float = setting(0.9, "decay of the sum of gradients", low=0.0, high=0.999999)

  moment: ClassVar[str] = "trace"
  rate_for_weights: ClassVar[float] = 0.01

  def precondition(self):
    """The decaying sum of the gradients."""
    import optax  # imports JAX, which settings alone do not need

    return optax.trace(self.momentum)
