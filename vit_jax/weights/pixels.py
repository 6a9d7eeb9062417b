"""Converts parameters for pixels of another mean and deviation to this project's range, -1 to 1."""

from collections.abc import Sequence

import numpy as np

from vit_jax.models.recognition import module_of


def folded(params: dict, mean: Sequence[float], deviation: Sequence[float]) -> dict:
  """Parameters of the same model for pixels from -1 to 1; the patch embedding changes, or
  the position embeddings in place of a bias that it has not.

  Args:
    params: of a model that takes (pixel - mean) / deviation, for pixels from 0 to 1.
    mean, deviation: of each channel; one number is for all.

  Raises:
    ValueError: the model begins with something other than a patch embedding of these channels.
  """
  mean, deviation = (np.asarray(values, float) for values in (mean, deviation))
  if (mean == 0.5).all() and (deviation == 0.5).all():
    return params
  kernel = np.asarray(params.get("embedding", {}).get("kernel", 0), float)  # (P, P, C, D)
  if kernel.ndim != 4 or "conv_root" in params:
    raise ValueError(
      f"its pixels have mean {mean} and std {deviation}; with a ResNet they must be 0.5"
    )
  channels = kernel.shape[2]
  if not {len(mean), len(deviation)} <= {1, channels}:
    raise ValueError(
      f"its images have {channels} channels, and its mean {mean} and std {deviation} are "
      "of others; give one number for each channel"
    )
  deviation = np.broadcast_to(deviation, channels)
  mean = np.broadcast_to(mean, channels)
  shift = np.einsum("hwcd,c->d", kernel, (0.5 - mean) / deviation)
  kernel = kernel * (0.5 / deviation)[:, None]
  embedding = {"kernel": np.float32(kernel)}
  if "bias" in params["embedding"]:
    embedding["bias"] = np.float32(params["embedding"]["bias"] + shift)
    return params | {"embedding": embedding}
  return _in_positions(params, shift) | {"embedding": embedding}


def _in_positions(params: dict, shift: np.ndarray) -> dict:
  """Adds a vector to all patches of a model whose patch embedding has no bias.

  Raises:
    ValueError: it has no learned position embeddings at the stem.
  """
  encoder = params["Transformer"]
  table = np.array(encoder.get("posembed_input", {}).get("pos_embedding", np.zeros(0)))
  if not table.size:
    raise ValueError(
      "the mean of its pixels is not 0.5, and its patches have neither bias nor positions"
    )
  before = module_of(params).tokens_before()
  table[:, before:] += np.float32(shift)
  return params | {"Transformer": encoder | {"posembed_input": {"pos_embedding": table}}}
