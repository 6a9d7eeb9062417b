"""Similarity of position embeddings (Section 4.5, Figure 7 centre; Appendix D.4, Figure 10)."""

import numpy as np
from flax.errors import ScopeParamShapeError

from vit_jax.extras.inspection import attention
from vit_jax.models import Network

MAX_PATCHES = 4096  # a table of similarities between them takes 64 MB


def position_similarity(
  module: Network, params: dict, grid: tuple[int, int]
) -> dict[str, np.ndarray]:
  """Cosine similarity of each patch's position embedding with all others.

  Args:
    module: an `Inspectable` model (vit_jax/models/family.py).
    params: its parameters, blocks not stacked.
    grid: rows and columns of patches for which the position embeddings are made.

  Returns:
    {place: similarities}. For "1d" and "2d" the places are "stem", "shared", or "layer 0", "layer
    1", ..., and similarities are (rows, columns, rows, columns) float32. For "relative" see
    `offset_similarity`. {} without position embeddings.

  Raises:
    ValueError: the model cannot be looked into, there are more than 4,096 patches, or the
      parameters are for another grid.
  """
  attention.check_transparent(module)
  if grid[0] * grid[1] > MAX_PATCHES:
    raise ValueError(
      f"the grid has {grid[0]} x {grid[1]} patches, and similarities are shown for at most "
      f"{MAX_PATCHES:,} patches; choose smaller images (--image-size)."
    )
  try:
    tables = module.position_tables(params, grid)
  except ScopeParamShapeError as error:
    raise ValueError(
      f"the parameters do not suit a grid of {grid[0]} x {grid[1]} patches; take those of "
      f"model.at_size(SIZE), for images of so many patches ({error})."
    ) from error
  if not tables:
    return offset_similarity(module, params, grid)
  return {
    place: cosines(np.asarray(table)).reshape(*grid, *grid) for place, table in tables.items()
  }


def offset_similarity(
  module: Network, params: dict, grid: tuple[int, int]
) -> dict[str, np.ndarray]:
  """For relative embeddings: the cosine similarity of each offset's embedding with offset zero's.

  Offsets count tokens in raster order: r rows and c columns are r * columns + c tokens. So (r, c)
  and (r + 1, c - columns) are the same offset. Axial models only have offsets along rows and along
  columns.

  Returns:
    {place: (heads, 2 rows - 1, 2 columns - 1) float32}, offset zero in the middle. Places are
    "layer 0", "layer 1", ...; in axial models "layer 0 rows" (heads, 1, 2 columns - 1) and "layer 0
    columns" (heads, 2 rows - 1, 1).
  """
  grids = module.attention_grids(grid)
  similarities = {}
  for i, attention_params in enumerate(module.attentions(params)):
    layer, axis = divmod(i, len(grids))
    if "pos_embedding_relative" in attention_params:
      table = attention_params["pos_embedding_relative"]
      similarities[f"layer {layer}{grids[axis].name}"] = _offsets(table, grids[axis].grid)
  return similarities


def cosines(vectors: np.ndarray) -> np.ndarray:
  """Cosine similarity of all pairs: (N, D) -> (N, N) float32."""
  vectors = vectors.astype(np.float64)
  unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
  return (unit @ unit.T).astype(np.float32)


def means(table: np.ndarray) -> dict[str, float]:
  """Mean similarity of different patches: in the same row, in the same column, and elsewhere.

  Args:
    table: (rows, columns, rows, columns).

  Returns:
    {"row": mean, "column": mean, "elsewhere": mean}, without keys for which there are no patches.
  """
  rows, columns = table.shape[:2]
  row = np.eye(rows, dtype=bool)[:, None, :, None]
  column = np.eye(columns, dtype=bool)[:, None, :]
  kinds = dict(row=row & ~column, column=column & ~row, elsewhere=~row & ~column)
  return {name: float(table[kind].mean()) for name, kind in kinds.items() if kind.any()}


def _offsets(table: np.ndarray, grid: tuple[int, int]) -> np.ndarray:
  rows, columns = grid
  middle = len(table) // 2
  down = np.arange(1 - rows, rows)
  right = np.arange(1 - columns, columns)
  offsets = middle + down[:, None] * columns + right
  heads = [cosines(table[:, head])[middle] for head in range(table.shape[1])]
  return np.stack(heads)[:, offsets]
