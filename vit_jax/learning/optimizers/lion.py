"""Lion: the sign of an interpolation between gradient and momentum."""

import dataclasses
from typing import ClassVar

from vit_jax.config import Optimizer
from vit_jax.config.fields import name_of_kind, setting


@dataclasses.dataclass(frozen=True)
class Lion(Optimizer):
  """u = sign(beta1 m + (1 - beta1) g), then m = beta2 m + (1 - beta2) g.

  Its learning rates are 3 to 10 times smaller than AdamW's, and its weight decay as much larger.

  Source: Chen et al., "Symbolic discovery of optimization algorithms", 2023, Algorithm 2.
  """

  kind: str = name_of_kind("lion", "signs of momentum")
  beta1: float = setting(0.9, "weight of the momentum in the update", low=0.0, high=0.999999)
  beta2: float = setting(0.99, "decay of the momentum", low=0.0, high=0.999999)

  moment: ClassVar[str] = "mu"

  def precondition(self):
    """Signs, 1 or -1 (0 where nothing has had a gradient)."""
    import optax  # imports JAX, which settings alone do not need

    return optax.scale_by_lion(self.beta1, self.beta2)
