"""LAMB: Adam with a trust ratio for each array."""

import dataclasses
import re
from typing import ClassVar

from vit_jax.config import ConfigError, Optimizer
from vit_jax.config.fields import name_of_kind, setting


@dataclasses.dataclass(frozen=True)
class LAMB(Optimizer):
  """u = AdamW's direction; the update is u |p| / |u| for each array p that decays.

  Arrays whose decay rule is 0, such as biases and norms, keep u, as in Apex and timm, with which
  DeiT III was trained; so does an array if it or u is 0. Without weight decay the others are scaled
  too, as in the paper but not in timm. Queries, keys and values are three arrays here and one in
  timm, so their ratios differ.

  Source: You et al., "Large batch optimization for deep learning", 2020, Algorithm 2.
  """

  kind: str = name_of_kind("lamb", "Adam scaled by each array's norm")
  beta1: float = setting(0.9, "decay of the first moment", low=0.0, high=0.999999)
  beta2: float = setting(0.999, "decay of the second moment", low=0.0, high=0.999999)
  epsilon: float = setting(1e-6, "added to the root of the second moment", low=1e-15, high=1.0)

  moment: ClassVar[str] = "mu"
  elementwise: ClassVar[bool] = False

  def check_start(self, config, new):
    """Refuses a last layer that begins at zero: its updates would be as small as it is."""
    from vit_jax.learning.optim import decay_factor  # imports JAX, as below

    of_lora = sorted(name for name in new if name.endswith("/b/kernel"))
    remedies = dict.fromkeys(("objective/prediction/kernel", *of_lora), "take another kind")
    if not config.model.head_std:
      remedies["head/kernel"] = "give it values, such as --config.model.head_std=0.02"
    for name, remedy in remedies.items():
      scaled = decay_factor(name, self.decay_rules) and re.fullmatch(self.trainable, name)
      if name in new and scaled:
        raise ConfigError(
          f"config.optimizer.kind='lamb' makes each update as large as the array, so {name}, which "
          f"begins at zero, hardly learns; {remedy}."
        )

  def precondition(self):
    """The gradient's first moment over the root of its second."""
    import optax  # imports JAX, which settings alone do not need

    return optax.scale_by_adam(self.beta1, self.beta2, self.epsilon)

  def adapt(self):
    """The trust ratio of each array that decays; each stacked block has its own."""
    import jax
    import optax

    from vit_jax.learning.optim import by_block, decay_factors

    def decays(params):
      return jax.tree.map(bool, decay_factors(params, self.decay_rules))

    return optax.masked(by_block(optax.scale_by_trust_ratio()), decays)
