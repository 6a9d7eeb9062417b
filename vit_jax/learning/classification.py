"""Classification of labelled images: the paper's objective."""

import dataclasses
import functools
from typing import ClassVar

from etils import epy

from vit_jax.config import AUTO, Config, ConfigError, Loss, ObjectiveSettings, Size, sides
from vit_jax.config.fields import Rule, name_of_kind, setting
from vit_jax.learning.objective import Objective, Sums
from vit_jax.process.text import shown

with epy.lazy_imports():  # reading settings needs no JAX
  import jax
  import jax.numpy as jnp

  from vit_jax.data import batches
  from vit_jax.learning import losses, mixing
  from vit_jax.models import vit_costs


def balanced(shares) -> tuple[tuple[float, ...], str]:
  """n / (K n_c) for the K classes with images, and 1 for the others."""
  known = shares()
  classes = sum(share > 0 for share in known)
  weights = tuple(1 / (classes * share) if share else 1.0 for share in known)
  return weights, "the number of images of each class"


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

  class_weights: tuple = setting(
    (),
    "weight of each class in the loss, which is divided by the sum of the weights of a batch's "
    "images; empty: all weigh 1. Each image must have one label",
    auto=Rule(
      ("facts.class_shares",), "n / (K n_c), with n_c of n images in class c of K", balanced
    ),
  )

  needs_labels: ClassVar[bool] = True
  trains_head: ClassVar[bool] = True

  def check(self, config: Config, model):
    """Refuses weights of classes that are no weights, and beside balanced drawing."""
    del model
    weights = self.class_weights
    if weights and config.data.class_balanced:
      raise ConfigError(
        "config.objective.class_weights and config.data.class_balanced=True would make up for rare "
        "classes twice; leave one of them out."
      )
    if weights in ((), AUTO):
      return
    if not all(is_weight(weight) for weight in weights) or not any(weights):
      raise ConfigError(
        f"config.objective.class_weights={shown(weights)} must be numbers from 0 to "
        f"{MAX_WEIGHT:g}, not all of them 0."
      )
    if config.model.num_classes not in (AUTO, len(weights)):
      raise ConfigError(
        f"config.objective.class_weights has {len(weights)} weights, and there are "
        f"{config.model.num_classes} classes; give one for each, in the order of their names, or "
        f"{AUTO}."
      )

  def check_labels(self, data: str, multi_label: bool):
    """Refuses CutMix and weights of classes for images with any number of labels."""
    if self.class_weights and multi_label:
      raise ConfigError(
        "config.objective.class_weights is for images with one label each, and those of "
        f"{data} have any number; leave it out."
      )
    if self.cutmix and multi_label:
      raise ConfigError(
        f"config.objective.cutmix={self.cutmix:g} is for images with one label each, and those of "
        f"{data} have any number; leave it out, or take config.objective.mixup."
      )

  def configured(self, config: Config, model) -> "Classification":
    """The objective of a run."""
    weights = () if self.class_weights == AUTO else self.class_weights  # without data
    return Classification(model, config.loss, self.mixup, self.cutmix, self.blended, weights)


MAX_WEIGHT = 1e6


def is_weight(value) -> bool:
  """Whether a value is the weight of a class."""
  number = isinstance(value, (int, float)) and not isinstance(value, bool)
  return number and 0 <= value <= MAX_WEIGHT


@dataclasses.dataclass(frozen=True)
class Classification(Objective):
  """The loss of the head's logits for given labels; see `vit_jax.learning.losses`.

  Attributes:
    model: Flax module with a head.
    settings: config.loss.
    mixup, cutmix, blended, class_weights: as in config.objective.
  """

  model: object
  settings: Loss = Loss(kind="softmax")
  mixup: float = 0.0
  cutmix: float = 0.0
  blended: str = "shares"
  class_weights: tuple[float, ...] = ()

  def init(self, key: "jax.Array", image_size: Size) -> dict:
    """The model's parameters."""
    images = jnp.zeros((1, *sides(image_size), self.model.channels))
    return self.model.init(key, images, train=False)["params"]

  def prepare(self, batch: dict, key: "jax.Array") -> dict:
    """The batch after CutMix, or with partners for MixUp."""
    return mixing.mixup_or_cutmix(batch, key, mixup_alpha=self.mixup, cutmix_alpha=self.cutmix)

  def loss(self, params: dict, extra: dict, batch: dict, key: "jax.Array") -> Sums:
    """The sums over a part of a batch; a prediction is right if its class is among the labels.

    With `class_weights` the loss of an image, smoothed or not, has the weight of its class, and a
    mixed image the blend of both weighted losses. `Sums.count` is then the sum of the weights.
    With the softmax an image without a label has the weight 0.
    """
    images = batches.normalize(mixing.mixed_images(batch), self.model.dtype)
    logits, _ = self.model.apply({"params": params}, images, train=True, rngs={"dropout": key})
    return self.sums(logits, batch)

  def sums(self, logits: "jax.Array", batch: dict) -> Sums:
    """The sums of `loss` for logits (B, num_classes)."""
    target = functools.partial(losses.targets, num_classes=logits.shape[-1])
    loss_of = functools.partial(losses.of(self.settings), logits)
    mask = batch["mask"]
    weights = mask * self.weights(batch)
    if self.blended == "whole":
      loss = jnp.sum(loss_of(mixing.whole_targets(target, batch)) * weights)
    else:
      values = mixing.blend(lambda labels: self._weight(labels) * loss_of(target(labels)), batch)
      loss = jnp.sum(values * mask)
    return Sums(loss, weights.sum(), {"accuracy": accuracy(logits, batch)})

  def _weight(self, labels: "jax.Array") -> "jax.Array | float":
    """The weight of the class of each label (B,), or whether there is one in indicators (B, K)."""
    if self.class_weights:
      return jnp.asarray(self.class_weights, jnp.float32)[labels]
    if losses.needs_a_label(self.settings, labels):
      return jnp.float32(labels.any(axis=-1))
    return 1.0

  def weights(self, batch: dict) -> "jax.Array | float":
    """The weight of each image (B,): of its labels, or the blend of both."""
    if not self.class_weights and not losses.needs_a_label(self.settings, batch["labels"]):
      return 1.0
    return mixing.blend(self._weight, batch)

  def training_flops(self, image_size: Size) -> int:
    """The training FLOPs of the whole model."""
    return vit_costs.training_flops(self.model.macs(*sides(image_size)))


def accuracy(logits: "jax.Array", batch: dict) -> tuple["jax.Array", "jax.Array"]:
  """How many images have a label as their most probable class, and how many have a label at all.

  Mixed images count by their shares.
  """
  highest = jnp.argmax(logits, axis=-1, keepdims=True)
  mask = batch["mask"]

  def is_right(labels):
    target = losses.targets(labels, logits.shape[-1])
    return jnp.take_along_axis(target, highest, axis=-1)[:, 0]

  right = jnp.sum(mixing.blend(is_right, batch) * mask)
  if batch["labels"].ndim == 1:  # each image has one
    return right, mask.sum()
  return right, jnp.sum(mixing.blend(lambda labels: labels.any(axis=-1), batch) * mask)
