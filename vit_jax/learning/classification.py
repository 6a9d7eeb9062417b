"""Classification of labelled images: the paper's objective."""

import dataclasses
import functools
from typing import ClassVar

from etils import epy

from vit_jax.config import Config, ConfigError, Loss, ObjectiveSettings
from vit_jax.config.fields import name_of_kind, setting
from vit_jax.learning.objective import Objective, Sums

with epy.lazy_imports():  # reading settings needs no JAX
  import jax
  import jax.numpy as jnp

  from vit_jax.data import batches
  from vit_jax.learning import losses, mixing
  from vit_jax.models import vit_costs


@dataclasses.dataclass(frozen=True)
class Settings(ObjectiveSettings):
  """The classes of labelled images, with config.loss."""

  kind: str = name_of_kind("classification", "the classes of labelled images")
  mixup: float = setting(
    0.0,
    "alpha of MixUp, which blends pairs of images by a weight from Beta(alpha, alpha); 0: no MixUp",
    low=1e-3,
    high=1e3,
    off=0.0,
  )
  cutmix: float = setting(
    0.0,
    "alpha of CutMix, which pastes a rectangle of another image, with a share of the area from "
    "Beta(alpha, alpha); with `mixup` too, each step draws one of them; 0: no CutMix",
    low=1e-3,
    high=1e3,
    off=0.0,
  )

  blended: str = setting(
    "shares",
    "targets of mixed images: both labels by their `shares`, or both `whole`, as in DeiT III",
    choices=("shares", "whole"),
    used_if=(("loss.kind", "sigmoid"),),
  )

  needs_labels: ClassVar[bool] = True
  trains_head: ClassVar[bool] = True

  def check_labels(self, data: str, multi_label: bool):
    """Refuses CutMix of images with any number of labels."""
    if self.cutmix and multi_label:
      raise ConfigError(
        f"config.objective.cutmix={self.cutmix:g} is for images with one label each, and those of "
        f"{data} have any number; leave it out, or take config.objective.mixup."
      )

  def configured(self, config: Config, model) -> "Classification":
    """The objective of a run."""
    return Classification(model, config.loss, self.mixup, self.cutmix, self.blended)


@dataclasses.dataclass(frozen=True)
class Classification(Objective):
  """The loss of the head's logits for given labels; see `vit_jax.learning.losses`.

  Attributes:
    model: Flax module with a head.
    settings: config.loss.
    mixup, cutmix, blended: as in config.objective.
  """

  model: object
  settings: Loss = Loss(kind="softmax")
  mixup: float = 0.0
  cutmix: float = 0.0
  blended: str = "shares"

  def init(self, key: "jax.Array", image_size: int) -> dict:
    """The model's parameters."""
    images = jnp.zeros((1, image_size, image_size, 3))
    return self.model.init(key, images, train=False)["params"]

  def prepare(self, batch: dict, key: "jax.Array") -> dict:
    """The batch after CutMix, or with partners for MixUp."""
    return mixing.mixup_or_cutmix(batch, key, mixup_alpha=self.mixup, cutmix_alpha=self.cutmix)

  def loss(self, params: dict, extra: dict, batch: dict, key: "jax.Array") -> Sums:
    """The sums over a part of a batch; a prediction is right if its class is among the labels."""
    images = batches.normalize(mixing.mixed_images(batch), self.model.dtype)
    logits, _ = self.model.apply({"params": params}, images, train=True, rngs={"dropout": key})
    target = functools.partial(losses.targets, num_classes=logits.shape[-1])
    loss_of = functools.partial(losses.of(self.settings), logits)
    if self.blended == "whole":
      values = loss_of(mixing.whole_targets(target, batch))
    else:
      values = mixing.blend(lambda labels: loss_of(target(labels)), batch)
    highest = jnp.argmax(logits, axis=-1, keepdims=True)

    def is_right(labels):
      return jnp.take_along_axis(target(labels), highest, axis=-1)[:, 0]

    mask = batch["mask"]
    count = mask.sum()
    right = mixing.blend(is_right, batch)
    loss = jnp.sum(values * mask)
    correct = jnp.sum(right * mask)
    return Sums(loss, count, {"accuracy": (correct, count)})

  def training_flops(self, image_size: int) -> int:
    """The training FLOPs of the whole model."""
    return vit_costs.training_flops(self.model.macs(image_size, image_size))
