"""Parts of the models again in NumPy, float64 and plain loops, from the paper's formulas.

Each function takes the parameters of the module that it stands for, under their own names.
"""

import numpy as np


def softmax(x):
  """Over the last axis."""
  weights = np.exp(x - x.max(axis=-1, keepdims=True))
  return weights / weights.sum(axis=-1, keepdims=True)


def layer_norm(params, x):
  """(..., D) -> (..., D)."""
  mean, variance = x.mean(axis=-1, keepdims=True), x.var(axis=-1, keepdims=True)
  return (x - mean) / np.sqrt(variance + 1e-6) * params["scale"] + params["bias"]


def dense(params, x):
  """(..., D) -> (..., K)."""
  return x @ params["kernel"] + params["bias"]


def gelu(x):
  """The tanh approximation (Hendrycks and Gimpel, 2016)."""
  return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def mlp(params, x):
  """(..., D) -> (..., D)."""
  return dense(params["Dense_1"], gelu(dense(params["Dense_0"], x)))


def attention(params, x, source=None):
  """Equations 5 to 8, image by image, head by head, query by query: (B, N, D) -> (B, N, D)."""
  source = x if source is None else source
  return np.stack([_attend(params, *pair) for pair in zip(x, source, strict=True)])


def _attend(params, x, source):
  heads, size, _ = params["out"]["kernel"].shape
  y = np.zeros_like(x) + params["out"]["bias"]
  for head in range(heads):
    query, key, value = (
      tokens @ params[name]["kernel"][:, head] + params[name]["bias"][head]
      for name, tokens in (("query", x), ("key", source), ("value", source))
    )
    query, key = (
      layer_norm(params[f"LayerNorm_{name}"], y) if f"LayerNorm_{name}" in params else y
      for name, y in (("query", query), ("key", key))
    )
    for q in range(len(query)):
      keys = key + _offsets(params, head, q, len(query))
      weights = softmax(keys @ query[q] / np.sqrt(size))
      y[q] += weights @ value @ params["out"]["kernel"][head]
  return y


def _offsets(params, head, q, tokens):
  """What query q adds to each key: the embedding of k - q, counted from -(N - 1); else 0."""
  if "pos_embedding_relative" not in params:
    return 0
  return np.stack(
    [params["pos_embedding_relative"][tokens - 1 + k - q, head] for k in range(tokens)]
  )


def encoder_block(params, x):
  """Equations 2 and 3, with LayerScale where the block has it."""
  scale = lambda i: params[f"LayerScale_{i}"]["scale"] if f"LayerScale_{i}" in params else 1
  y = layer_norm(params["LayerNorm_0"], x)
  x = x + scale(1) * attention(params["MultiHeadDotProductAttention_1"], y)
  return x + scale(3) * mlp(params["MlpBlock_3"], layer_norm(params["LayerNorm_2"], x))


def axial_block(params, x, grid):
  """A block over each row of the grid, then one over each column: (B, N, D) -> (B, N, D)."""
  rows, columns = grid
  x = x.reshape(len(x), rows, columns, -1).copy()
  for row in range(rows):
    x[:, row] = encoder_block(params["row"], x[:, row])
  for column in range(columns):
    x[:, :, column] = encoder_block(params["column"], x[:, :, column])
  return x.reshape(len(x), rows * columns, -1)


def group_norm(params, x, epsilon):
  """Over 32 groups of neighbouring channels of (B, H, W, C)."""
  groups = x.reshape(len(x), -1, 32, x.shape[-1] // 32)
  mean = groups.mean(axis=(1, 3), keepdims=True)
  variance = groups.var(axis=(1, 3), keepdims=True)
  y = ((groups - mean) / np.sqrt(variance + epsilon)).reshape(x.shape)
  return y * params["scale"] + params["bias"]
