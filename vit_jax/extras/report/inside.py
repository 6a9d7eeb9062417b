"""Looks inside a run's newest checkpoint: filters, position embeddings, attention."""

import dataclasses
from collections.abc import Iterator

import matplotlib
import numpy as np
from PIL import Image

from vit_jax.config import RunError
from vit_jax.evaluation import examples
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
from vit_jax.extras.report.thumbnails import resized, rgb
from vit_jax.inference import model as inference
from vit_jax.inference.model import LoadedModel
from vit_jax.storage import checkpoint
from vit_jax.weights import average

PAIR = 400  # pixels, the width of an image and its overlay side by side


def section(run: RecordedRun, title: str) -> Section:
  """The section about a run; empty without a checkpoint, or if the model cannot be looked into."""
  if not checkpoint.available(run.folder):
    return Section(title)
  try:
    path = checkpoint.find(run.folder)
    model = inference.read_model(path).at_size()
    if model.module.why_opaque():
      return Section(title)
    pictures = looked_into(run, model, title)
    whose = f", {average.in_words(True)}" * model.card.average
    words = [f"The checkpoint after step {int(path.name):,}{whose}."]
    return dataclasses.replace(pictures, words=words)
  except (ValueError, OSError, RunError) as error:
    return Section(title, [f"The newest checkpoint cannot be looked into: {error}"])


def looked_into(run: RecordedRun, model: LoadedModel, title: str) -> Section:
  """The pictures of a run's model.

  Raises:
    ValueError: the parameters are not finite, or images cannot be used.
  """
  shown = [(scored, rows) for scored in run.sets if (rows := usable(scored, model))]
  pictures = [*of_parameters(model)]
  if not shown:
    return Section(title, pictures=pictures)
  scored, rows = shown[0]
  images = np.stack([np.asarray(rgb(scored.images[row])) for row in rows])
  labels = [str(scored.labels[row]) for row in rows]
  whose = scored.images_in_words
  pictures.append(distances(model, images, whose))
  return Section(title, pictures=pictures, sections=[rollouts(model, images, labels, whose)])


def of_parameters(model: LoadedModel) -> Iterator[Picture]:
  """Pictures that need the parameters alone."""
  components = filter_components(model.module, model.params)
  yield Picture(
    examples.png(inside.filters(components.tiles)),
    "png",
    "The principal components of the filters as coloured tiles.",
    f"The first {len(components.tiles)} principal components of the filters of "
    f"{model.module.filters_in_words()}, which hold {components.variance.sum():.0%} of their "
    "variance (Figure 7, left)",
  )
  side = model.card.image_size
  values = position_similarity(model.module, model.params, model.module.grid(side, side))
  if not values:
    return
  alt = "A grid of grids: how similar each position embedding is to all others."
  caption = "Cosine similarity of position embeddings (Figure 7, centre)"
  if next(iter(values.values())).ndim == 3:
    alt = "A map for each head of each layer: how similar each offset is to offset zero."
    caption = "Cosine similarity of the embeddings of all offsets with that of offset zero, by head"
  yield Picture(inked(inside.similarities, values), "svg+xml", alt, caption)


def usable(scored: ScoredSet, model: LoadedModel) -> list[int]:
  """Evenly spaced rows of a set's kept images; [] unless all have the model's image size."""
  rows = [row for row in examples.evenly(len(scored.labels)) if row in scored.images]
  side = model.card.image_size
  sizes = {rgb(scored.images[row]).size for row in rows}
  return rows if sizes == {(side, side)} else []


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


def rollouts(model: LoadedModel, images: np.ndarray, labels: list[str], whose: str) -> Section:
  """Attention Rollout of images; empty for models without it."""
  title = f"Attention Rollout of images of {whose}"
  if model.module.why_no_map():
    return Section(title)
  maps, logits = rollout(model.module, model.params, images)
  probabilities = np.asarray(model.probabilities(logits))
  pictures = []
  for image, attention, label, row in zip(images, maps, labels, probabilities, strict=True):
    caption = label
    if model.has_head:
      best = int(row.argmax())
      caption = f"{label}, predicted {model.class_names[best]} ({row[best]:.1%})"
    data = resized(Image.fromarray(overlay.pair(image, attention)), PAIR)
    pictures.append(Picture(data, "png", f"An image of {caption}, and its rollout.", caption))
  words = "Each image, and how much of the output comes from each part of it (Figures 6 and 14)."
  return Section(title, [f"{words} {overlay.CAPTION}"], pictures=pictures)


def inked(draw, values) -> bytes:
  """The Matplotlib figure `draw(values)` as SVG for light and dark screens."""
  with matplotlib.rc_context(charts.RC):
    return charts.svg(draw(values))
