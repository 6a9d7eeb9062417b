"""The loss of labels and of a teacher's logits (Hinton et al., 2015; Touvron et al., 2021)."""

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping

from etils import epy

from vit_jax.config import AUTO, Config, ConfigError, Size, sides
from vit_jax.config.fields import Rule, name_of_kind, setting
from vit_jax.learning import classification
from vit_jax.learning.objective import OBJECTIVE_PARAMS, Sums
from vit_jax.process.text import shown

with epy.lazy_imports():  # reading settings needs no JAX
  import jax
  import jax.numpy as jnp
  import numpy as np

  from vit_jax.data import batches
  from vit_jax.extras.distillation import teacher as teachers
  from vit_jax.learning import losses, mixing

KIND = "distillation"
TEACHER = "teacher"  # the subtree of `extra`
DIFFERENCE = "difference"  # the subtree of the objective's own parameters
_BIAS = f"{OBJECTIVE_PARAMS}/{DIFFERENCE}/bias"


def digest_of(place) -> tuple[str, str]:
  """The checksum of the teacher's parameters."""
  return (teachers.read(place).digest, "") if place else ("", "")


def outputs_of(place, digest, labels) -> tuple[tuple[int, ...], str]:
  """The outputs of the teacher for the data's classes, compared by name."""
  if not place:
    return (), ""
  order = teachers.read(place, digest).outputs_for(tuple(labels().class_names))
  return order.outputs or (), f"the teacher's classes are {order.description}"


@dataclasses.dataclass(frozen=True)
class Settings(classification.Settings):
  """Labels and a teacher: the loss is (1 - share) of the labels', and share of the teacher's.

  A model with pool=distilled learns the labels at its class token and from the teacher at its
  distillation token.

  Source: Hinton et al., "Distilling the knowledge in a neural network", 2015, Section 2; Touvron et
  al., "Training data-efficient image transformers & distillation through attention", 2021,
  equations 2 and 3.
  """

  kind: str = name_of_kind(KIND, "the classes of labelled images, and what a teacher predicts")
  teacher: str = setting(
    "",
    "weights of the teacher, in any form that `init_from` takes; they are for the same image size, "
    "and for the classes of the data",
  )
  target: str = setting(
    "hard",
    "what the teacher tells: its most probable class (`hard`), or the probabilities of all classes "
    "(`soft`)",
    choices=("hard", "soft"),
  )
  share: float = setting(0.5, "weight of the teacher's loss", low=1e-6, high=1.0)
  temperature: float = setting(
    3.0,
    "divisor T of the logits of both models; the loss is T² times the KL divergence",
    low=1e-3,
    high=1e3,
    used_if=(("objective.target", "soft"),),
  )
  digest: str = setting(
    AUTO,
    "checksum of the teacher's parameters: a run does not go on with another teacher",
    auto=Rule(("objective.teacher",), "the teacher", digest_of, stays="always"),
  )
  outputs: tuple = setting(
    AUTO,
    "for each class of the data, the output of the teacher's head; empty: in the same order",
    auto=Rule(
      ("objective.teacher", "objective.digest", "facts.labels"),
      "the names of the teacher's classes",
      outputs_of,
    ),
  )

  def check(self, config: Config, model):
    """Refuses a teacher that does not suit the images, and another one than that of the run."""
    super().check(config, model)
    if not self.teacher:
      raise ConfigError(
        f"config.objective.kind={KIND} needs a teacher; name its weights with "
        "--config.objective.teacher=PATH."
      )
    if config.loss.kind == "sigmoid":
      raise ConfigError(
        f"config.objective.kind={KIND} is for images with one label each, whose loss is a softmax; "
        "give --config.loss.kind=softmax."
      )
    known = self._known()
    known.for_images(config.data.image_size)
    channels = known.loaded.module.channels
    if channels != model.channels:
      raise ConfigError(
        f"config.objective.teacher={self.teacher} is for images of {channels} channels, and the "
        f"student's have {model.channels}; give --config.model.channels={channels}."
      )
    if known.loaded.card.loss == "sigmoid" and self.target == "soft":
      raise ConfigError(
        f"config.objective.teacher={self.teacher} gives each class a probability of its own, so "
        "they have no temperature in common; give --config.objective.target=hard."
      )
    if config.model.num_classes != AUTO:
      known.check_count(config.model.num_classes)
    if self.outputs != AUTO and sorted(self.outputs) not in ([], [*range(known.class_count)]):
      raise ConfigError(
        f"config.objective.outputs={shown(self.outputs)} does not name each of the "
        f"{known.class_count:,} outputs of the teacher once; leave it out."
      )

  def check_labels(self, data: str, multi_label: bool):
    """Refuses images with any number of labels."""
    super().check_labels(data, multi_label)
    if multi_label:
      raise ConfigError(
        f"config.objective.kind={KIND} is for images with one label each, and those of {data} have "
        "any number; give --config.objective.kind=classification."
      )

  def _known(self) -> "teachers.Teacher":
    """The teacher; refuses another one than that whose checksum is recorded."""
    known = teachers.read(self.teacher, self.digest)
    if self.digest not in (AUTO, known.digest):
      raise ConfigError(
        f"config.objective.teacher={self.teacher} is not the teacher that the run began with: its "
        f"parameters have the checksum {known.digest}, not {self.digest}. Give that teacher, or "
        "begin a run with another --workdir."
      )
    return known

  def configured(self, config: Config, model) -> "Distillation":
    """The objective of a run."""
    base = super().configured(config, model)
    loaded = self._known().for_images(config.data.image_size)
    outputs = () if self.outputs == AUTO else self.outputs  # without data
    return Distillation(
      **{field.name: getattr(base, field.name) for field in dataclasses.fields(base)},
      teacher=Given(loaded.module.clone(dtype=model.dtype), loaded.params, outputs),
      taught=functools.partial(TARGETS[self.target], temperature=self.temperature),
      share=self.share,
    )


@dataclasses.dataclass(frozen=True, eq=False)
class Given:
  """The teacher of a run.

  Attributes:
    module: Flax module.
    params: its parameters, NumPy arrays.
    outputs: for each class of the data, the output of the head; (): the same order.
  """

  module: object
  params: Mapping
  outputs: tuple[int, ...] = ()

  def logits(self, params: Mapping, images: "jax.Array") -> "jax.Array":
    """The logits (B, classes of the data), without dropout; no gradient reaches them.

    Args:
      params: the parameters on the devices.
      images: (B, S, S, 3) from -1 to 1.
    """
    logits, _ = self.module.apply({"params": params}, images, train=False)
    if self.outputs:
      logits = logits[:, np.array(self.outputs)]
    return jax.lax.stop_gradient(logits)


@dataclasses.dataclass(frozen=True)
class Distillation(classification.Classification):
  """The loss of the labels and of the teacher's logits for the same crop, mixed if the crop is.

  Attributes:
    teacher: the teacher.
    taught: (logits of the student, logits of the teacher) -> losses (B,).
    share: weight of these losses.
  """

  teacher: Given = Given(None, {})
  taught: Callable = None
  share: float = 0.5

  def init(self, key: "jax.Array", image_size: Size) -> dict:
    """The model's parameters; with two heads, half the difference of their biases too."""
    params = super().init(key, image_size)
    if not self._has_two_heads():
      return params
    return params | {OBJECTIVE_PARAMS: {DIFFERENCE: {"bias": jnp.zeros(self.model.num_classes)}}}

  def trainable(self, pattern: str) -> str:
    """The pattern; if it matches the bias of two heads in one, half their difference too."""
    with_head = self._has_two_heads() and re.fullmatch(pattern, "head/bias")
    if with_head and not re.fullmatch(pattern, _BIAS):
      return f"{pattern}|{_BIAS}"
    return pattern

  def per_class(self) -> str:
    """Half the difference of the biases of two heads."""
    return _BIAS

  def given(self) -> dict:
    """The teacher's parameters."""
    return {TEACHER: self.teacher.params}

  def loss(self, params: dict, extra: dict, batch: dict, key: "jax.Array") -> Sums:
    """The sums over a part of a batch.

    With `class_weights`, both losses of an image have the weight of its class. Metrics besides the
    accuracy of the head that learns the labels: teacher_loss, without its weight; agreement, the
    fraction of images to which student and teacher give the same class; and teacher_accuracy.
    """
    images = batches.normalize(mixing.mixed_images(batch), self.model.dtype)
    of_labels, of_teacher = self._logits(params, images, key)
    told = self.teacher.logits(extra[TEACHER], images)
    labelled = self.sums(of_labels, batch)
    values = self.taught(of_teacher, told)
    mask = batch["mask"]
    taught = jnp.sum(values * mask * self.weights(batch))
    agreeing = jnp.argmax(of_teacher, axis=-1) == jnp.argmax(told, axis=-1)
    loss = (1 - self.share) * labelled.loss + self.share * taught
    metrics = {
      "teacher_loss": (jnp.sum(values * mask), mask.sum()),
      "agreement": (jnp.sum(agreeing * mask), mask.sum()),
      "teacher_accuracy": classification.accuracy(told, batch),
    }
    return labelled._replace(loss=loss, metrics=labelled.metrics | metrics)

  def training_flops(self, image_size: Size) -> int:
    """The training FLOPs of the student, and those of the teacher's logits."""
    of_teacher = 2 * self.teacher.module.macs(*sides(image_size))
    return super().training_flops(image_size) + of_teacher

  def _has_two_heads(self) -> bool:
    return getattr(self.model, "pool", "") == "distilled"

  def _logits(self, params, images, key) -> "tuple[jax.Array, jax.Array]":
    """The logits that learn the labels, and those that learn from the teacher.

    One head over class token and distillation token computes the mean of a head over each. So the
    head over one of them is twice its part of the kernel, with the common bias, to which half the
    difference of the two biases is added, or from which it is taken.
    """
    call = functools.partial(self.model.apply, {"params": params})
    options = dict(train=True, rngs={"dropout": key})
    if not self._has_two_heads():
      logits, _ = call(images, **options)
      return logits, logits
    both = call(images, **options, method="features")["pre_logits"]
    of_class, of_distillation = jnp.split(both, 2, axis=-1)
    nothing = jnp.zeros_like(of_class)
    first = call(jnp.concatenate([2 * of_class, nothing], axis=-1), method="classify")
    second = call(jnp.concatenate([nothing, 2 * of_distillation], axis=-1), method="classify")
    difference = params[OBJECTIVE_PARAMS][DIFFERENCE]["bias"]
    return first + difference, second - difference


def hard(logits: "jax.Array", told: "jax.Array", *, temperature: float) -> "jax.Array":
  """The cross-entropy (B,) with the teacher's most probable class (DeiT, equation 3)."""
  del temperature
  target = jax.nn.one_hot(jnp.argmax(told, axis=-1), told.shape[-1])
  return losses.softmax(logits, target, label_smoothing=0.0)


def soft(logits: "jax.Array", told: "jax.Array", *, temperature: float) -> "jax.Array":
  """T² KL(softmax(told / T) || softmax(logits / T)), (B,) in nats (DeiT, equation 2)."""
  log_told = jax.nn.log_softmax(told / temperature)
  log_own = jax.nn.log_softmax(logits / temperature)
  return temperature**2 * jnp.sum(jnp.exp(log_told) * (log_told - log_own), axis=-1)


TARGETS = {"hard": hard, "soft": soft}
