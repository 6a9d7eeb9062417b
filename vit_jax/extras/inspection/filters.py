"""Principal components of the filters that see the pixels (Section 4.5, Figure 7 left)."""

from typing import NamedTuple

import numpy as np

from vit_jax.extras.inspection import attention
from vit_jax.extras.inspection.principal import principal_components
from vit_jax.models import Network

SHOWN = 28


class Components(NamedTuple):
  """Principal components of filters.

  Attributes:
    tiles: (K, P, P, 3) float32 from 0 to 1, where 0.5 is zero; all scaled by one factor.
    variance: (K,) float64, the share of the filters' variance along each component, descending.
  """

  tiles: np.ndarray
  variance: np.ndarray


def filter_components(module: Network, params: dict) -> Components:
  """The first 28 principal components of the patch-embedding filters, as in Figure 7.

  The D filters are the samples and their P * P * 3 weights the features; their mean is subtracted.
  Each component has length 1 and the sign that makes its largest weight positive. For hybrids the
  filters are those of the ResNet's root, standardised as the model applies them.

  Args:
    module, params: the model.

  Returns:
    The components; fewer than 28 if the filters have fewer.

  Raises:
    ValueError: the model cannot be looked into, or a filter is not finite.
  """
  attention.check_transparent(module)
  kernel = np.asarray(module.filters(params), np.float64)
  if not np.isfinite(kernel).all():
    raise ValueError("the patch-embedding filters hold values that are not finite numbers.")
  return components(kernel)


def components(kernel: np.ndarray) -> Components:
  """As `filter_components`, of a kernel (P, P, 3, D) float64."""
  samples = kernel.reshape(-1, kernel.shape[-1]).T
  vectors, variance = principal_components(samples, SHOWN)
  tiles = 0.5 + 0.5 * vectors / np.abs(vectors).max()
  return Components(tiles.reshape(-1, *kernel.shape[:3]).astype(np.float32), variance)
