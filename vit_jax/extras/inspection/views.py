"""What `tools/visualize.py` shows of a model: a function for each kind of picture."""

import dataclasses
import pathlib
from collections.abc import Callable, Sequence

import numpy as np

from vit_jax.config import ConfigError, recorded
from vit_jax.data import datasets
from vit_jax.data.by_label import of_all_classes
from vit_jax.evaluation import details, results
from vit_jax.extras.inspection import distance as distances
from vit_jax.extras.inspection import filters as principal
from vit_jax.extras.inspection import maps as attention_maps
from vit_jax.extras.inspection import records, representation, similarity
from vit_jax.extras.inspection.gallery import Gallery, seen_box
from vit_jax.extras.inspection.shown import InspectionResult
from vit_jax.extras.plots import captions, inside, overlay
from vit_jax.extras.plots.labels import label
from vit_jax.inference import LoadedModel, predict
from vit_jax.storage import files

AT_A_TIME = 8  # images whose features are computed together
NEIGHBOURS = 5
BEST = 2  # classes in a caption
ROWS = 24  # images with their neighbours
MAP_SHARE = 0.2  # of a map, its brightest part


def filters(model: LoadedModel) -> InspectionResult:
  """Principal components of the filters; raises as `principal.filter_components`."""
  components = principal.filter_components(model.module, model.params)
  count, side = components.tiles.shape[:2]
  first, together = float(components.variance[0]), float(components.variance.sum())
  return InspectionResult(
    f"{count} principal components of the filters of {model.module.filters_in_words()} "
    f"({side} x {side} pixels) hold {together:.1%} of their variance; the first, top left, holds "
    f"{first:.1%}.",
    dict(components=count, first=first, together=together),
    [("filters.png", inside.filters(components.tiles))],
    {"filters.npz": components._asdict()},
  )


def positions(model: LoadedModel) -> InspectionResult:
  """Similarities of position embeddings; raises as `similarity.position_similarity`."""
  side = model.card.image_size
  grid = model.module.grid(side, side)
  tables = similarity.position_similarity(model.module, model.params, grid)
  if not tables:
    raise ValueError("these weights have no position embeddings, so there is nothing to compare.")
  means = {place: similarity.means(table) for place, table in tables.items() if table.ndim == 4}
  places = {"row": "within a row", "column": "within a column", "elsewhere": "elsewhere"}
  text = "; ".join(
    f"{place}: mean cosine " + ", ".join(f"{x:.2f} {places[kind]}" for kind, x in kinds.items())
    for place, kinds in means.items()
    if kinds
  )
  if not means:
    text = "For each head, how alike each offset is to offset zero"
  return InspectionResult(
    f"Position embeddings of {side} px images. {text or 'There is one patch alone'}.",
    means,
    [("positions.png", inside.similarities(tables))],
    {"positions.npz": tables},
  )


def distance(
  model: LoadedModel, gallery: Gallery, on_image: Callable[[], None]
) -> InspectionResult:
  """Mean attention distance of every head; raises as `distances.mean_distances`."""
  images = gallery.squares(model.card)
  by_head = distances.mean_distances(model.module, model.params, images, on_image=on_image)
  axes = by_head if by_head.ndim == 3 else by_head[None]
  means = axes.mean(axis=(0, 2)).tolist()
  rows = [
    [*([inside.AXES[axis]] if by_head.ndim == 3 else []), layer, head, f"{value:.6f}"]
    for (axis, layer, head), value in np.ndenumerate(axes)
  ]
  header = [*(["axis"] if by_head.ndim == 3 else []), "layer", "head", "pixels"]
  figure = inside.attention_distances(by_head)
  return InspectionResult(
    f"Mean attention distance over {gallery.in_words()} of {model.card.image_size} px: "
    f"{means[0]:.1f} px in the first layer (heads {axes[:, 0].min():.1f} to "
    f"{axes[:, 0].max():.1f}), {means[-1]:.1f} px in the last (heads {axes[:, -1].min():.1f} to "
    f"{axes[:, -1].max():.1f}).",
    dict(image_size=model.card.image_size, images=len(gallery), mean_by_layer=means),
    [("distance.png", figure), ("distance.svg", figure)],
    {"distance.csv": [header, *rows]},
  )


def attention(
  model: LoadedModel,
  gallery: Gallery,
  on_image: Callable[[], None],
  raw: tuple[int, int] | None = None,
) -> InspectionResult:
  """Attention Rollout over images, or one head's attention; raises as `maps`' functions.

  Args:
    model, gallery, on_image: the model, the images, and what is called when one is done.
    raw: the layer and the head, both from 0; None: the rollout.
  """
  images, options = gallery.squares(model.card), dict(on_image=on_image)
  if raw:
    look, options = attention_maps.raw, options | dict(layer=raw[0], head=raw[1])
  else:
    look = attention_maps.rollout
  maps, logits = look(model.module, model.params, images, **options)
  best = best_classes(model, logits) if model.has_head else [()] * len(gallery)
  rows = [
    [i, name, *(cell for pair in classes for cell in pair)]
    for i, (name, classes) in enumerate(zip(gallery.names, best, strict=True))
  ]
  share = float(np.mean([brightest(each) for each in maps]))
  what = f"Attention of layer {raw[0]}, head {raw[1]}" if raw else "Attention Rollout"
  return InspectionResult(
    f"{what} over {gallery.in_words()}: the brightest fifth of the patches gets {share:.0%} of "
    f"the map. {overlay.CAPTION}",
    dict(images=len(gallery), brightest_fifth=share),
    _attention_pictures(model, gallery, maps, best),
    {"attention.npz": dict(maps=maps, logits=logits), "attention.csv": [_header(best), *rows]},
  )


def features(
  model: LoadedModel, gallery: Gallery, on_image: Callable[[], None], method: str
) -> InspectionResult:
  """A map of the representations of images, and their nearest neighbours.

  Args:
    model, gallery, on_image: as in `attention`.
    method: of `representation.plane`.

  Raises:
    ValueError: as `representation.plane`.
  """
  images = gallery.squares(model.card)
  whole = dataclasses.replace(model, card=dataclasses.replace(model.card, resize=0))  # they are cut
  vectors = predict.features(whole, images, batch_size=AT_A_TIME, on_image=on_image)
  places = representation.plane(vectors, method)
  rows, alike = representation.neighbours(vectors, NEIGHBOURS)
  labels = gallery.labels or [""] * len(gallery)
  table = [
    [name, labels[i], *(f"{x:.6f}" for x in places[i]), *(gallery.names[j] for j in rows[i])]
    for i, name in enumerate(gallery.names)
  ]
  header = ["name", "class", "x", "y", *(f"neighbour {k + 1}" for k in range(rows.shape[1]))]
  same = np.mean([labels[i] == labels[j] for i, j in enumerate(rows[:, 0])]).item()
  of_class = f"; the nearest neighbour of {same:.1%} has the same class" if gallery.labels else ""
  title = {"tsne": "t-SNE", "pca": "Principal components"}[method] + f" of {gallery.in_words()}"
  figure = inside.plane(places, gallery.labels, title)
  chosen = of_all_classes(labels, ROWS)
  pictures = [images[chosen], *(images[column] for column in rows[chosen].T)]
  classes = [[labels[j] for j in (i, *rows[i])] for i in chosen] if gallery.labels else []
  return InspectionResult(
    f"{title}{of_class}.",
    dict(images=len(gallery), same_class=same if gallery.labels else None),
    [
      ("features.png", figure),
      ("features.svg", figure),
      ("neighbours.png", captions.picture_table(pictures, classes)),
    ],
    {
      "features.csv": [header, *table],
      "features.npz": dict(features=vectors, places=places, neighbours=rows, similarities=alike),
    },
  )


def mistakes(workdir: pathlib.Path, count: int, gallery: Gallery | None = None) -> InspectionResult:
  """The most confident mistakes of each evaluation set of a workdir.

  Args:
    workdir: the run.
    count: the most images of each set.
    gallery: where the images are; None: in the sets of the run's settings.

  Raises:
    ConfigError: there is no evaluation, or an image of it cannot be wrong or read.
    OSError, ValueError: the predictions, or what they are of, cannot be read.
  """
  texts, summary, pictures, numbers = [], {}, [], {}
  for path in records.evaluated(workdir):
    name = path.parent.name
    whose = results.whose(name, results.recorded(path.parent))
    wrong, total = records.mistakes(path)
    texts.append(_worst(whose, wrong, total))
    summary[name] = dict(mistakes=len(wrong), images=total)
    numbers[f"mistakes_{name}.csv"] = [details.COLUMNS, *wrong[:count]]
    if wrong:
      images = _images_of(wrong[:count], gallery or set_of(workdir, name), name)
      lines = [f"{label(m.label)}, not {label(m.prediction)}\n{m.probability:.1%}" for m in wrong]
      pictures.append((f"mistakes_{name}.png", captions.figure(images, lines[:count], whose)))
  return InspectionResult(" ".join(texts), summary, pictures, numbers)


def set_of(workdir: pathlib.Path, name: str) -> Gallery:
  """The images of an evaluation set in a run's settings.

  Raises:
    ConfigError: the settings have no such set, or its data is missing.
  """
  config = recorded.read_config(workdir)
  spec = config.evaluate.get(name)
  if spec is None or not spec.given():
    raise ConfigError(
      f"{workdir}/config.json does not tell where the images of the set {name!r} are; give them "
      "with --images."
    )
  source = datasets.opener_of(config.data).source(spec.scored())
  names = [source.name(i) for i in range(len(source))]
  return Gallery(names, lambda i: source[i].image, (), len(source), config.data.max_pixels)


def best_classes(model: LoadedModel, logits: np.ndarray) -> list[list[tuple[str, float]]]:
  """The two most probable classes of each image, with their probabilities."""
  probabilities, names = np.asarray(model.probabilities(logits)), model.class_names
  order = np.argsort(-probabilities, axis=1, kind="stable")[:, :BEST]
  return [
    [(names[k], float(row[k])) for k in best]
    for row, best in zip(probabilities, order, strict=True)
  ]


def brightest(attention: np.ndarray) -> float:
  """The share of an attention map that is in its brightest fifth of patches."""
  values = np.sort(attention.flatten().astype(np.float64))[::-1]
  return float(values[: max(1, round(MAP_SHARE * len(values)))].sum() / max(values.sum(), 1e-30))


def _attention_pictures(model, gallery, maps, best):
  """Each image beside its overlay, at its own size; then all of them in one figure."""
  small = []
  for i, attention in enumerate(maps):
    image = gallery.original(i)
    pair = overlay.pair(image, attention, seen_box(*image.shape[:2], model.card))
    small.append(captions.sized(pair))
    yield f"attention/{i:03d}.png", pair
  lines = ["\n".join(f"{label(name)} {x:.1%}" for name, x in classes) for classes in best]
  yield "attention.png", captions.figure(small, lines)


def _header(best: Sequence) -> list[str]:
  columns = [f"{what} {k + 1}" for k in range(len(best[0])) for what in ("class", "probability")]
  return ["number", "name", *columns]


def _worst(whose: str, wrong: list[records.Mistake], total: int) -> str:
  images = f"{total:,} image{'s' * (total != 1)}"
  if not wrong:
    return f"{whose}: no mistakes among {images}."
  first = wrong[0]
  return (
    f"{whose}: {len(wrong):,} of {images} {'is' if len(wrong) == 1 else 'are'} wrong; the most "
    f"confident, {first.name}, is {first.label} and was taken for {first.prediction} with "
    f"{first.probability:.1%}."
  )


def _images_of(wrong: list[records.Mistake], gallery: Gallery, name: str) -> list[np.ndarray]:
  """The images of mistakes, small enough for a figure."""
  places = {files.as_written(known): i for i, known in enumerate(gallery.names)}
  for mistake in wrong:
    if mistake.name not in places:
      raise ConfigError(
        f"{mistake.name} of the evaluation set {name!r} is not among the {len(places):,} images; "
        "give those that were evaluated with --images."
      )
  return [captions.sized(gallery.original(places[mistake.name])) for mistake in wrong]
