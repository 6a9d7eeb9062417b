"""Converts parameters for pixels of another mean and deviation to this project's range, -1 to 1."""

from collections.abc import Sequence

import numpy as np


def folded(params: dict, mean: Sequence[float], deviation: Sequence[float]) -> dict:
  """Parameters of the same model for pixels from -1 to 1; only the patch embedding changes.

  Args:
    params: of a model that takes (pixel - mean) / deviation, for pixels from 0 to 1.
    mean, deviation: of each colour.

  Raises:
    ValueError: the model begins with something other than a patch embedding of colours.
  """
  mean, deviation = (np.asarray(values, float) for values in (mean, deviation))
  if (mean == 0.5).all() and (deviation == 0.5).all():
    return params
  kernel = np.asarray(params.get("embedding", {}).get("kernel", 0), float)  # (P, P, 3, D)
  if kernel.ndim != 4 or kernel.shape[2] != 3:
    raise ValueError(
      f"its pixels have mean {mean} and std {deviation}; with a ResNet they must be 0.5"
    )
  shift = np.einsum("hwcd,c->d", kernel, (0.5 - mean) / deviation)
  kernel = kernel * (0.5 / deviation)[:, None]
  bias = params["embedding"]["bias"] + shift
  return params | {"embedding": {"kernel": np.float32(kernel), "bias": np.float32(bias)}}
