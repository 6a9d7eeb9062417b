"""Looks inside a trained model: filters, position embeddings, attention, features, mistakes."""

from vit_jax.extras.inspection.attention import attention_weights
from vit_jax.extras.inspection.distance import mean_distances
from vit_jax.extras.inspection.filters import filter_components
from vit_jax.extras.inspection.maps import raw, rollout
from vit_jax.extras.inspection.records import mistakes
from vit_jax.extras.inspection.representation import neighbours, plane
from vit_jax.extras.inspection.similarity import position_similarity

__all__ = [
  "attention_weights",
  "filter_components",
  "mean_distances",
  "mistakes",
  "neighbours",
  "plane",
  "position_similarity",
  "raw",
  "rollout",
]
