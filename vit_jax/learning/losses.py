"""Losses per example, in float32."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax

from vit_jax.config import Loss


def targets(labels: jax.Array, num_classes: int) -> jax.Array:
  """Labels as (B, K) float32 indicators, from class numbers (B,) or from indicators (B, K)."""
  if labels.ndim == 1:
    return jax.nn.one_hot(labels, num_classes, dtype=jnp.float32)
  return labels.astype(jnp.float32)


def softmax(logits: jax.Array, target: jax.Array, *, label_smoothing: float) -> jax.Array:
  """Cross-entropy of a softmax over classes: -sum_k t_k log p_k.

  Several true classes share the probability equally. Label smoothing spreads a fraction s of the
  target equally over all K classes: t' = (1 - s) t + s / K.

  Args:
    logits: (B, K).
    target: (B, K) indicators.
    label_smoothing: s, in [0, 1].

  Returns:
    (B,) losses in nats.
  """
  target = target / jnp.maximum(target.sum(axis=-1, keepdims=True), 1.0)
  target = (1 - label_smoothing) * target + label_smoothing / target.shape[-1]
  return optax.softmax_cross_entropy(logits.astype(jnp.float32), target)


def sigmoid(logits: jax.Array, target: jax.Array, *, label_smoothing: float) -> jax.Array:
  """Binary cross-entropy per class, summed over classes (multi-label pre-training).

  Label smoothing moves each class's target towards one half: t' = (1 - s) t + s / 2.

  Args and returns: as `softmax`.
  """
  target = (1 - label_smoothing) * target + label_smoothing / 2
  return optax.sigmoid_binary_cross_entropy(logits.astype(jnp.float32), target).sum(axis=-1)


def needs_a_label(settings: Loss, labels: jax.Array) -> bool:
  """Whether images that have none of the classes are no examples; labels as for `targets`.

  A softmax has no target for them, while a sigmoid says of each class that it is not there.
  """
  return settings.kind == "softmax" and labels.ndim == 2


def of(settings: Loss) -> Callable[[jax.Array, jax.Array], jax.Array]:
  """The loss of config.loss: (logits (B, K), target (B, K)) -> (B,)."""
  loss = functools.partial(LOSSES[settings.kind], label_smoothing=settings.label_smoothing)
  if settings.over_classes == "sum":
    return loss
  return lambda logits, target: loss(logits, target) / logits.shape[-1]


LOSSES = {"softmax": softmax, "sigmoid": sigmoid}
PROBABILITIES = {"softmax": jax.nn.softmax, "sigmoid": jax.nn.sigmoid}  # of logits (..., K)
