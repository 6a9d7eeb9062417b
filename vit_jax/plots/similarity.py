"""Similarities of position embeddings, a grid of grids for each place (Figures 7 and 10)."""

from collections.abc import Mapping

import numpy as np

COLUMNS = 4
DPI = 120


def figure(similarities: Mapping[str, np.ndarray]):
  """A figure with one plot for each place.

  Args:
    similarities: {place: (rows, columns, rows, columns)}: in row i and column j the similarities of
      patch (i, j) with all patches; or {place: (heads, rows, columns)}, a map for each head.

  Returns:
    A figure of Matplotlib.
  """
  from matplotlib.figure import Figure  # slow to import

  pictures = {place: grid_of_grids(values) for place, values in similarities.items()}
  columns = min(COLUMNS, len(pictures))
  rows = -(-len(pictures) // columns)
  cells = np.max([picture.shape for picture in pictures.values()], axis=0)
  least = 6 if columns == 1 else 3.5  # inches; more where a cell would be less than a pixel
  height, width = np.maximum(cells / DPI * 1.2, least * cells / cells.max())
  size = columns * width + 1.2, rows * (max(height, 0.3) + 0.4)
  drawn = Figure(figsize=size, layout="constrained")
  axes = drawn.subplots(rows, columns, squeeze=False).flatten()
  for each in axes:
    each.axis("off")
  for each, (place, picture) in zip(axes, pictures.items(), strict=False):
    image = each.imshow(picture, vmin=-1, vmax=1, cmap="viridis", interpolation="nearest")
    each.set_title(place)
  drawn.colorbar(image, ax=axes.tolist(), label="cosine similarity")
  return drawn


def grid_of_grids(values: np.ndarray) -> np.ndarray:
  """Maps (I, J, rows, columns) or (I, rows, columns) in one array (H, W), NaN between them."""
  values = values[None] if values.ndim == 3 else values
  framed = np.pad(values, ((0, 0), (0, 0), (0, 1), (0, 1)), constant_values=np.nan)
  down, right, rows, columns = framed.shape
  return framed.swapaxes(1, 2).reshape(down * rows, right * columns)[:-1, :-1]
