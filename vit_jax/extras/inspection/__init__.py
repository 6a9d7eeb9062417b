"""Looks inside a trained model: filters, position embeddings, attention, features, mistakes."""

from vit_jax.extras.inspection.attention import attention_weights
from vit_jax.extras.inspection.distance import mean_distances
from vit_jax.extras.inspection.filters import filter_components
from vit_jax.extras.inspection.maps import heads, raw, rollout
from vit_jax.extras.inspection.patches import patch_colours, patch_features
from vit_jax.extras.inspection.records import mistakes
from vit_jax.extras.inspection.representation import neighbours, plane
from vit_jax.extras.inspection.similarity import position_similarity

__all__ = [
  "attention_weights",
  "filter_components",
  "heads",
  "mean_distances",
  "mistakes",
  "neighbours",
  "patch_colours",
  "patch_features",
  "plane",
  "position_similarity",
  "raw",
  "rollout",
]
