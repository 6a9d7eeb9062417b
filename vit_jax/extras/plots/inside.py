"""Figures of a model's filters, positions and attention (Figures 7, 10 and 11), and of features."""

from collections.abc import Mapping, Sequence

import numpy as np

from vit_jax.evaluation import examples
from vit_jax.extras.plots.charts import legend_above
from vit_jax.extras.plots.labels import LETTERS, LINE, caption, label

AXES = ("along rows", "along columns")
MAX_CLASSES = 20  # in a legend: ten colours, two markers
PLACES_IN_A_ROW = 4
FILTERS_IN_A_ROW = 7
DPI = 120
MOST_MAPS = 8  # rows and columns of a grid of which all patches have a map
CELLS_OF_GAP = 12  # the gap between maps is one cell for each twelve of a map's side
SOME_MAPS = 7  # of a larger grid
BESIDE = 0.35  # width of the marks beside maps, inches
WIDTH = 5.6  # of a figure of filters, inches
FILTER_RANGE = 0.98  # quantile of the distances from zero that gets a full colour
OF_FILTERS = f"Grey is 0; weights above the {FILTER_RANGE:.0%} quantile have full colour."


def filters(components: np.ndarray) -> np.ndarray:
  """Filters (K, P, P, 3) from 0 to 1, seven in a row: (H, W, 3) uint8.

  Grey is 0.5. The quantile `FILTER_RANGE` of the distances from it, or more, gets a full colour, so
  that a few large weights do not leave the others grey.
  """
  far = np.quantile(np.abs(components - 0.5), FILTER_RANGE, method="higher")
  spread = np.clip((components - 0.5) / max(2 * far, 1e-30), -0.5, 0.5)
  pixels = np.round(255 * (0.5 + spread)).astype(np.uint8)
  return examples.grid(pixels, min(FILTERS_IN_A_ROW, len(components)))


def filter_figure(components: np.ndarray, title: str):
  """A Matplotlib figure of filters as `filters` draws them, with a title.

  Args:
    components: (K, P, P, 3) from 0 to 1.
    title: in words.
  """
  from matplotlib.figure import Figure  # slow to import

  picture = filters(components)
  text = caption(title, round(LETTERS * WIDTH))
  height = WIDTH * picture.shape[0] / picture.shape[1] + LINE * (text.count("\n") + 1.5)
  drawn = Figure(figsize=(WIDTH, height), layout="constrained")
  axes = drawn.subplots()
  axes.axis("off")
  axes.imshow(picture, interpolation="nearest")
  drawn.suptitle(text, fontsize=9)
  return drawn


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


def similarities(by_place: Mapping[str, np.ndarray], title: str = ""):
  """A figure with one plot for each place.

  Args:
    by_place: {place: (rows, columns, rows, columns)}: in row i and column j the similarities of
      patch (i, j) with all patches, for the patches of `spaced`; or {place: (heads, rows,
      columns)}, a map for each head.
    title: of the figure, in words.

  Returns:
    A Matplotlib figure.
  """
  from matplotlib.figure import Figure  # slow to import

  pictures = {place: grid_of_grids(arranged(values)) for place, values in by_place.items()}
  columns = min(PLACES_IN_A_ROW, len(pictures))
  rows = -(-len(pictures) // columns)
  cells = np.max([picture.shape for picture in pictures.values()], axis=0)
  least = 4.5 if columns == 1 else 3  # inches; more if a cell would be smaller than a pixel
  height, width = np.maximum(cells / DPI * 1.2, least * cells / cells.max())
  size = (columns * (width + BESIDE) + 1.2, rows * (max(height, 0.3) + 0.4) + 2 * LINE)
  drawn = Figure(figsize=size, layout="constrained")
  drawn.get_layout_engine().set(wspace=0.06)
  axes = drawn.subplots(rows, columns, squeeze=False).flatten()
  for each in axes[len(pictures) :]:
    each.axis("off")
  for each, (place, picture) in zip(axes, pictures.items(), strict=False):
    image = each.imshow(picture, vmin=-1, vmax=1, cmap="viridis", interpolation="nearest")
    mark_patches(each, by_place[place])
    if len(pictures) > 1:
      each.set_title(place, fontsize=9)
  drawn.suptitle(caption(title, round(LETTERS * size[0])), fontsize=9)
  drawn.colorbar(image, ax=axes.tolist(), label="cosine similarity")
  return drawn


def mark_patches(axes, values: np.ndarray):
  """Marks the row and the column of the patch that each map is of; maps of heads have no marks."""
  axes.spines[:].set_visible(False)
  axes.set(xticks=[], yticks=[])
  if values.ndim == 3:
    return
  axes.tick_params(length=0, labelsize=7)
  for axis, name, side in ((axes.yaxis, "row", 0), (axes.xaxis, "column", 1)):
    shown = spaced(values.shape[side])
    count = values.shape[side]
    middles = np.arange(len(shown)) * (count + gap(values)) + (count - 1) / 2
    axis.set_ticks(middles, shown)
    axis.set_label_text(f"{name} of the patch", size=8)


def spaced(count: int) -> list[int]:
  """All rows or columns of a grid, or seven of many, evenly spaced from the first to the last."""
  if count <= MOST_MAPS:
    return list(range(count))
  return np.linspace(0, count - 1, SOME_MAPS).round().astype(int).tolist()


def shown_in_words(grid: tuple[int, int]) -> str:
  """The number of patches of a grid for which `similarities` draws maps: "7 x 7 of 37 x 37"."""
  rows, columns = grid
  shown = f"{len(spaced(rows))} x {len(spaced(columns))}"
  whole = f"{rows} x {columns}"
  if shown == whole:
    return whole
  return f"{shown} of {whole}"


def arranged(values: np.ndarray) -> np.ndarray:
  """Maps in rows and columns, (I, J, rows, columns).

  Args:
    values: (rows, columns, rows, columns), of which the maps of `spaced` patches are kept; or
      (heads, rows, columns), arranged so that the whole is nearly a square.
  """
  if values.ndim == 4:
    return values[np.ix_(spaced(values.shape[0]), spaced(values.shape[1]))]
  heads, rows, columns = values.shape
  across = min(max(round((heads * rows / columns) ** 0.5), 1), heads)
  missing = -heads % across
  filled = np.pad(values, ((0, missing), (0, 0), (0, 0)), constant_values=np.nan)
  return filled.reshape(-1, across, rows, columns)


def grid_of_grids(values: np.ndarray) -> np.ndarray:
  """Maps (I, J, rows, columns) in one array (H, W), with gaps of NaN between them."""
  between = gap(values)
  margin = (0, between)
  framed = np.pad(values, ((0, 0), (0, 0), margin, margin), constant_values=np.nan)
  down, right, rows, columns = framed.shape
  return framed.swapaxes(1, 2).reshape(down * rows, right * columns)[:-between, :-between]


def gap(values: np.ndarray) -> int:
  """The cells between maps (..., rows, columns)."""
  return -(-max(values.shape[-2:]) // CELLS_OF_GAP)


def plane(places: np.ndarray, labels: Sequence[str], title: str):
  """A figure with a dot for each image.

  Args:
    places: (N, 2).
    labels: the class of each image, "" without one; () if they are not known. With more than 20
      classes, colours repeat and there is no legend.
    title: the title of the figure.

  Returns:
    A Matplotlib figure.
  """
  from matplotlib.figure import Figure  # slow to import

  drawn = Figure(figsize=(6.4, 5), layout="constrained")
  axes = drawn.subplots()
  axes.set(title=title, xticks=[], yticks=[])
  classes = sorted({*labels} - {""})
  if not classes:
    axes.scatter(*places.T, s=12)
  elif "" in labels:
    without = places[np.array(labels) == ""]
    axes.scatter(*without.T, s=12, color="lightgrey", label="without a label")
  for i, name in enumerate(classes):
    members = places[np.array(labels) == name]
    axes.scatter(*members.T, s=12, color=f"C{i % 10}", marker="o^"[i // 10 % 2], label=label(name))
  if 0 < len(classes) <= MAX_CLASSES:
    drawn.legend(loc="outside right upper")
  return drawn
