"""Adam; with decoupled weight decay it is AdamW."""

import dataclasses
from typing import ClassVar

from vit_jax.config import Optimizer
from vit_jax.config.fields import name_of_kind, setting


@dataclasses.dataclass(frozen=True)
class Adam(Optimizer):
  """Adam, or, with decoupled weight decay, AdamW."""

  kind: str = name_of_kind("adam", "Adam (with decoupled decay: AdamW)")
  beta1: float = setting(0.9, "decay of the first moment", low=0.0, high=0.999999)
  beta2: float = setting(0.999, "decay of the second moment", low=0.0, high=0.999999)
  epsilon: float = setting(1e-8, "added to the root of the second moment", low=1e-15, high=1.0)

  moment: ClassVar[str] = "mu"
  rated_as_adam: ClassVar[bool] = True
  is_averaged: ClassVar[bool] = True

  def precondition(self):
    """The gradient's first moment over the root of its second."""
    import optax  # imports JAX, which settings alone do not need

    return optax.scale_by_adam(self.beta1, self.beta2, self.epsilon)
