"""Filters as coloured tiles (Figure 7 left)."""

import numpy as np

from vit_jax.plots import tiles

COLUMNS = 7


def picture(filters: np.ndarray) -> np.ndarray:
  """Filters (K, P, P, 3) from 0 to 1, seven in a row: (H, W, 3) uint8."""
  return tiles.grid(np.round(255 * filters).astype(np.uint8), min(COLUMNS, len(filters)))
