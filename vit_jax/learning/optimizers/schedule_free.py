"""Schedule-free AdamW: an average of the parameters in place of a decaying learning rate."""

import dataclasses
from typing import ClassVar

from vit_jax.config import ConfigError, Optimizer
from vit_jax.config.fields import name_of_kind, setting


@dataclasses.dataclass(frozen=True)
class ScheduleFree(Optimizer):
  """Three sequences: z takes the steps, x is their average, and gradients are taken at y.

  The parameters of a run are y. Its moving average is x, which evaluations, exports and fine-tuning
  take.

  Source: Defazio et al., "The road less scheduled", 2024, equations 4 to 6 and Section 4.

  y = beta1 x + (1 - beta1) z; z' = z - rate u(y); x' = (1 - c) x + c z', with u AdamW's direction
  without a first moment, and c the share of this step in the sum of the squares of the largest rate
  so far.
  """

  kind: str = name_of_kind("schedule_free", "schedule-free AdamW")
  beta1: float = setting(
    0.9, "weight of the average in the parameters that gradients are of", low=0.01, high=0.999999
  )
  beta2: float = setting(0.999, "decay of the second moment", low=0.0, high=0.999999)
  epsilon: float = setting(1e-8, "added to the root of the second moment", low=1e-15, high=1.0)
  moment_dtype: str = setting("float32", "there is no first moment", choices=("float32",))
  ema: float = setting(0.0, "always 0: the average is a part of this rule", low=0.0, high=0.0)

  moment: ClassVar[str] = ""
  of_start: ClassVar = ("beta1",)  # the average is kept as beta1 mixes it with z

  @property
  def averages(self) -> bool:
    """x is the average."""
    return True

  def check(self, config):
    """Refuses a learning rate that decays, as averaging takes the place of decay."""
    if config.schedule.decay != "constant":
      raise ConfigError(
        f"config.schedule.decay={config.schedule.decay!r} does not suit config.optimizer.kind="
        "'schedule_free', which averages in place of a decaying learning rate; give "
        "--config.schedule.decay=constant."
      )

  def precondition(self):
    """The gradient over the root of its second moment."""
    import optax  # imports JAX, which settings alone do not need

    return optax.scale_by_rms(self.beta2, self.epsilon, eps_in_sqrt=False, bias_correction=True)

  def around(self, update):
    """Turns the updates of AdamW into changes of y."""
    import optax

    def free(rate):
      return optax.contrib.schedule_free(update, rate, self.beta1)

    def changed(grads, state, params, **given):
      return free(given["learning_rate"]).update(grads, state, params, **given)

    return optax.GradientTransformationExtraArgs(free(0.0).init, changed)

  def averaged(self, state, params):
    """x."""
    import optax

    return optax.contrib.schedule_free_eval_params(state, params)
