"""Looks inside a run's newest checkpoint: filters, position embeddings, attention."""

import dataclasses
from collections.abc import Iterator, Sequence

import matplotlib
import numpy as np

from vit_jax.config import RunError, sides
from vit_jax.evaluation import catalogue, examples
from vit_jax.extras.inspection import (
  filter_components,
  mean_distances,
  position_similarity,
  rollout,
)
from vit_jax.extras.plots import charts, inside, overlay
from vit_jax.extras.report.document import Picture, Section
from vit_jax.extras.report.run import RecordedRun
from vit_jax.extras.report.scored_set import ScoredSet
from vit_jax.extras.report.thumbnails import jpeg, rgb, scaled
from vit_jax.inference import model as inference
from vit_jax.inference.model import LoadedModel
from vit_jax.storage import checkpoint
from vit_jax.weights.card import parameters_in_words


@dataclasses.dataclass(frozen=True)
class Opened:
  """The newest checkpoint of a run.

  Attributes:
    model: its model; None without a checkpoint, or if the model cannot be looked into.
    step: of the checkpoint.
    error: why it cannot be looked into; "" if there is nothing to say.
  """

  model: LoadedModel | None = None
  step: int = 0
  error: str = ""


def opened(run: RecordedRun) -> Opened:
  """The newest checkpoint of a run."""
  if not checkpoint.available(run.folder):
    return Opened()
  try:
    path = checkpoint.find(run.folder)
    model = inference.read_model(path).at_size()
  except (ValueError, OSError, RunError) as error:
    return Opened(error=in_words(error))
  if model.module.why_opaque():
    return Opened()
  return Opened(model, int(path.name))


def in_words(error: Exception) -> str:
  """Why a checkpoint cannot be looked into."""
  return f"The newest checkpoint cannot be looked into: {error}"


def section(run: RecordedRun, of: Opened, title: str) -> Section:
  """The section about a run; empty without a model."""
  if of.model is None:
    return Section(title, [of.error] * bool(of.error))
  whose = f", {parameters_in_words(True)}" * of.model.card.average
  try:
    words = [f"The checkpoint after step {of.step:,}{whose}."]
    return Section(title, words, pictures=looked_into(run, of.model))
  except (ValueError, OSError) as error:
    return Section(title, [in_words(error)])


def looked_into(run: RecordedRun, model: LoadedModel) -> list[Picture]:
  """The pictures of a run's model.

  Raises:
    ValueError: the parameters are not finite, or images cannot be used.
    OSError: an image is damaged.
  """
  pictures = [*of_parameters(model)]
  for scored in run.sets:
    if rows := usable(scored, model):
      images = np.stack([np.asarray(rgb(scored.images[row])) for row in rows])
      return [*pictures, distances(model, images, scored.images_in_words)]
  return pictures


def overlays(of: Opened, scored: ScoredSet, rows: Sequence[int]) -> dict[int, bytes]:
  """Attention Rollout over images of a set, as JPEG by row.

  Returns {} if the set was not scored with the parameters of this checkpoint, if the model has no
  such maps, or if an image cannot be used.
  """
  model = of.model
  if model is None or model.module.why_no_map() or not scored_with(of, scored):
    return {}
  try:
    if not {*rows} <= {*usable(scored, model)}:
      return {}
    images = [rgb(scored.images[row]) for row in rows]
    maps, _ = rollout(model.module, model.params, np.stack([np.asarray(one) for one in images]))
  except (ValueError, OSError):
    return {}
  drawn = [
    overlay.tinted(np.asarray(scaled(image)), attention)
    for image, attention in zip(images, maps, strict=True)
  ]
  return dict(zip(rows, map(jpeg, drawn), strict=True))


def scored_with(of: Opened, scored: ScoredSet) -> bool:
  """Whether a set was scored with the parameters of this checkpoint."""
  averaged = bool(scored.metrics.get(catalogue.AVERAGE))
  return scored.metrics.get("step") == of.step and averaged == of.model.card.average


def of_parameters(model: LoadedModel) -> Iterator[Picture]:
  """Pictures that need the parameters alone."""
  components = filter_components(model.module, model.params)
  yield Picture(
    examples.png(inside.filters(components.tiles)),
    "png",
    "The principal components of the filters as coloured tiles.",
    f"The first {len(components.tiles)} principal components of the filters of "
    f"{model.module.filters_in_words()}, which hold {components.variance.sum():.0%} of their "
    f"variance (Figure 7, left). {inside.OF_FILTERS}",
  )
  grid = model.module.grid(*sides(model.card.image_size))
  values = position_similarity(model.module, model.params, grid)
  if not values:
    return
  alt = "A grid of grids: how similar each position embedding is to all others."
  shown = inside.shown_in_words(grid)
  caption = f"Cosine similarity of position embeddings: maps of {shown} patches (Figure 7, centre)"
  if next(iter(values.values())).ndim == 3:
    alt = "A map for each head of each layer: how similar each offset is to offset zero."
    caption = "Cosine similarity of the embeddings of all offsets with that of offset zero, by head"
  yield Picture(inked(inside.similarities, values), "svg+xml", alt, caption)


def usable(scored: ScoredSet, model: LoadedModel) -> list[int]:
  """The rows of a set's kept images; [] unless all have the model's image size.

  Raises:
    OSError: an image is damaged.
  """
  height, width = sides(model.card.image_size)
  sizes = {rgb(path).size for path in scored.images.values()}
  return [*scored.images] if sizes == {(width, height)} else []


def distances(model: LoadedModel, images: np.ndarray, whose: str) -> Picture:
  """The mean attention distance of every head."""
  values = mean_distances(model.module, model.params, images)
  layers = values.mean(axis=-1).reshape(-1, model.module.depth).mean(axis=0)  # both axes
  return Picture(
    inked(inside.attention_distances, values),
    "svg+xml",
    f"Mean attention distance by layer: from {layers[0]:.1f} pixels in the first to "
    f"{layers[-1]:.1f} in the last, averaged over heads.",
    f"Mean attention distance of every head, over {len(images)} images of {whose} (Figure 7, "
    "right)",
  )


def inked(draw, values) -> bytes:
  """The Matplotlib figure `draw(values)` as SVG for light and dark screens."""
  with matplotlib.rc_context(charts.RC):
    return charts.svg(draw(values))
