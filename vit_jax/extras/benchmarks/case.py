"""A case to measure: a model at an image size, in inference or in training."""

import dataclasses

from vit_jax import recipes
from vit_jax.config import AUTO, Config, Duration
from vit_jax.recipes import cost
from vit_jax.recipes.loading import largest_side

INFERENCE = "inference"
TRAINING = "training"


@dataclasses.dataclass(frozen=True)
class Case:
  """A program whose speed is measured.

  Attributes:
    what: `INFERENCE`, the logits of a batch; or `TRAINING`, an update by a batch.
    model: a name of vit_jax.models.
    image_size: side of the images, pixels.
  """

  what: str
  model: str
  image_size: int

  def config(self, batch_size: int, compute_dtype: str = AUTO) -> Config:
    """The pre-training of the model on JFT-300M, with this image size, as in vit-jax cost.

    Raises:
      ConfigError: there is no such model.
    """
    resnet = recipes.is_resnet(self.model)
    base = recipes.pretrain(self.model, "jft", epochs=7, learning_rate=1e-3, resnet=resnet)
    return dataclasses.replace(
      base,
      batch_size=batch_size,
      duration=Duration(steps=2 * base.schedule.warmup.steps),
      model=dataclasses.replace(base.model, compute_dtype=compute_dtype),
      data=dataclasses.replace(base.data, image_size=self.image_size),
    )

  def gflops(self) -> float:
    """1e9 FLOPs for one image."""
    config = self.config(batch_size=1)
    if self.what == INFERENCE:
      return 2 * cost.forward_macs(config) / 1e9
    return cost.training_flops(config) / 1e9


def cases(names: list[str], sides: list[int]) -> list[Case]:
  """All cases of some models and image sizes.

  If the patches of a model do not tile a size, the largest one below it takes its place.

  Raises:
    ConfigError: there is no such model, or an image size is smaller than its patches.
  """
  return [
    Case(what, name, largest_side(name, side))
    for what in (INFERENCE, TRAINING)
    for name in names
    for side in sides
  ]
