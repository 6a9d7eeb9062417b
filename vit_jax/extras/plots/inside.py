"""Figures of a model's filters, positions and attention (Figures 7, 10 and 11), and of features."""

from collections.abc import Mapping, Sequence

import numpy as np

from vit_jax.evaluation import examples
from vit_jax.extras.plots.charts import legend_above
from vit_jax.extras.plots.labels import label

AXES = ("along rows", "along columns")
MAX_CLASSES = 20  # in a legend: ten colours, two markers
PLACES_IN_A_ROW = 4
FILTERS_IN_A_ROW = 7
DPI = 120


def filters(components: np.ndarray) -> np.ndarray:
  """Filters (K, P, P, 3) from 0 to 1, seven in a row: (H, W, 3) uint8."""
  pixels = np.round(255 * components).astype(np.uint8)
  return examples.grid(pixels, min(FILTERS_IN_A_ROW, len(components)))


def attention_distances(distances: np.ndarray):
  """A figure with a dot for each head.

  Args:
    distances: (depth, heads) pixels; or (2, depth, heads), along rows and along columns.

  Returns:
    A Matplotlib figure.
  """
  from matplotlib.figure import Figure  # slow to import

  drawn = Figure(figsize=(4.8, 3.8), layout="constrained")
  axes = drawn.subplots()
  by_name = {"a head": distances}
  if distances.ndim == 3:
    by_name = dict(zip(AXES, distances, strict=False))
  for name, values in by_name.items():
    depth, heads = values.shape
    layers = np.repeat(np.arange(depth), heads)
    axes.scatter(layers, values.flatten(), s=16, alpha=0.8, label=name)
    axes.plot(values.mean(axis=1), alpha=0.5, label="mean of heads")
  axes.set(xlabel="layer", ylabel="mean attention distance (pixels)")
  axes.set_ylim(0, 1.05 * axes.get_ylim()[1])
  axes.xaxis.get_major_locator().set_params(integer=True)
  axes.grid(alpha=0.3)
  legend_above(axes)
  return drawn


def similarities(by_place: Mapping[str, np.ndarray]):
  """A figure with one plot for each place.

  Args:
    by_place: {place: (rows, columns, rows, columns)}: in row i and column j the similarities of
      patch (i, j) with all patches; or {place: (heads, rows, columns)}, a map for each head.

  Returns:
    A Matplotlib figure.
  """
  from matplotlib.figure import Figure  # slow to import

  pictures = {place: grid_of_grids(values) for place, values in by_place.items()}
  columns = min(PLACES_IN_A_ROW, len(pictures))
  rows = -(-len(pictures) // columns)
  cells = np.max([picture.shape for picture in pictures.values()], axis=0)
  least = 4.5 if columns == 1 else 3  # inches; more if a cell would be smaller than a pixel
  height, width = np.maximum(cells / DPI * 1.2, least * cells / cells.max())
  size = (columns * width + 1.2, rows * (max(height, 0.3) + 0.4))
  drawn = Figure(figsize=size, layout="constrained")
  axes = drawn.subplots(rows, columns, squeeze=False).flatten()
  for each in axes:
    each.axis("off")
  for each, (place, picture) in zip(axes, pictures.items(), strict=False):
    image = each.imshow(picture, vmin=-1, vmax=1, cmap="viridis", interpolation="nearest")
    each.set_title(place)
  if len(pictures) == 1:
    axes[0].set_title("position embeddings")
  drawn.colorbar(image, ax=axes.tolist(), label="cosine similarity")
  return drawn


def grid_of_grids(values: np.ndarray) -> np.ndarray:
  """Maps (I, J, rows, columns) or (I, rows, columns) in one array (H, W), NaN between them."""
  if values.ndim == 3:
    values = values[None]
  framed = np.pad(values, ((0, 0), (0, 0), (0, 1), (0, 1)), constant_values=np.nan)
  down, right, rows, columns = framed.shape
  return framed.swapaxes(1, 2).reshape(down * rows, right * columns)[:-1, :-1]


def plane(places: np.ndarray, labels: Sequence[str], title: str):
  """A figure with a dot for each image.

  Args:
    places: (N, 2).
    labels: the class of each image; () if they are not known. With more than 20 classes, colours
      repeat and there is no legend.
    title: the title of the figure.

  Returns:
    A Matplotlib figure.
  """
  from matplotlib.figure import Figure  # slow to import

  drawn = Figure(figsize=(6.4, 5), layout="constrained")
  axes = drawn.subplots()
  axes.set(title=title, xticks=[], yticks=[])
  classes = sorted(set(labels))
  if not classes:
    axes.scatter(*places.T, s=12)
  for i, name in enumerate(classes):
    members = places[np.array(labels) == name]
    axes.scatter(*members.T, s=12, color=f"C{i % 10}", marker="o^"[i // 10 % 2], label=label(name))
  if 0 < len(classes) <= MAX_CLASSES:
    drawn.legend(loc="outside right upper")
  return drawn
