"""The views of `vit-jax visualize`: a function for each kind of picture."""

import dataclasses
from collections.abc import Callable

import numpy as np

from vit_jax.config import ConfigError, in_pixels, recorded, sides
from vit_jax.data import datasets
from vit_jax.data.by_label import of_all_classes
from vit_jax.evaluation import results
from vit_jax.extras.inspection import distance as distances
from vit_jax.extras.inspection import filters as principal
from vit_jax.extras.inspection import records, representation, similarity
from vit_jax.extras.inspection.gallery import Gallery
from vit_jax.extras.inspection.shown import InspectionResult
from vit_jax.extras.plots import captions, inside
from vit_jax.extras.plots.labels import label
from vit_jax.inference import LoadedModel, predict
from vit_jax.storage import files, paths
from vit_jax.storage.paths import Path

AT_A_TIME = 8  # images whose features are computed together
NEIGHBOURS = 5
ROWS = 24  # images with their neighbours
PLACES = {"row": "within a row", "column": "within a column", "elsewhere": "elsewhere"}
TITLES = {"tsne": "t-SNE", "pca": "Principal components"}


def filters(model: LoadedModel) -> InspectionResult:
  """Principal components of the filters; raises as `principal.filter_components`."""
  components = principal.filter_components(model.module, model.params)
  count, *patch = components.tiles.shape[:3]
  first = float(components.variance[0])
  together = float(components.variance.sum())
  text = (
    f"{count} principal components of the filters of {model.module.filters_in_words()} "
    f"({in_pixels(tuple(patch))} pixels) hold {together:.1%} of their variance; the first, top "
    f"left, holds {first:.1%}."
  )
  return InspectionResult(
    text,
    dict(components=count, first=first, together=together),
    [("filters.png", inside.filter_figure(components.tiles, f"{text} {inside.OF_FILTERS}"))],
    {"filters.npz": components._asdict()},
  )


def positions(model: LoadedModel) -> InspectionResult:
  """Similarities of position embeddings; raises as `similarity.position_similarity`."""
  size = model.card.image_size
  grid = model.module.grid(*sides(size))
  tables = similarity.position_similarity(model.module, model.params, grid)
  if not tables:
    raise ValueError("these weights have no position embeddings, so there is nothing to compare.")
  means = {place: similarity.means(table) for place, table in tables.items() if table.ndim == 4}
  title = "A map for each head: the embeddings of all offsets compared with that of offset zero."
  if means:
    shown = inside.shown_in_words(grid)
    title = f"Maps of {shown} patches: each compares one position embedding with all."
  return InspectionResult(
    f"Position embeddings of {in_pixels(size)} px images. {_means_in_words(means)}.",
    means,
    [("positions.png", inside.similarities(tables, title))],
    {"positions.npz": tables},
  )


def _means_in_words(means: dict[str, dict[str, float]]) -> str:
  """The mean similarities of each table; without means, the embeddings are relative."""
  if not means:
    return "For each head, how alike each offset is to offset zero"
  sentences = []
  for place, kinds in means.items():
    if kinds:
      values = ", ".join(f"{mean:.2f} {PLACES[kind]}" for kind, mean in kinds.items())
      sentences.append(f"{place}: mean cosine {values}")
  return "; ".join(sentences) or "There is one patch alone"


def distance(
  model: LoadedModel, gallery: Gallery, on_image: Callable[[], None]
) -> InspectionResult:
  """Mean attention distance of every head; raises as `distances.mean_distances`."""
  images = gallery.squares(model.card)
  by_head = distances.mean_distances(model.module, model.params, images, on_image=on_image)
  axes = by_head.reshape(-1, *by_head.shape[-2:])
  means = axes.mean(axis=(0, 2)).tolist()
  figure = inside.attention_distances(by_head)
  return InspectionResult(
    f"Mean attention distance over {gallery.in_words()} of {in_pixels(model.card.image_size)} px: "
    f"{means[0]:.1f} px in the first layer (heads {axes[:, 0].min():.1f} to "
    f"{axes[:, 0].max():.1f}), {means[-1]:.1f} px in the last (heads {axes[:, -1].min():.1f} to "
    f"{axes[:, -1].max():.1f}).",
    dict(image_size=model.card.image_size, images=len(gallery), mean_by_layer=means),
    [("distance.png", figure), ("distance.svg", figure)],
    {"distance.csv": _distance_table(by_head)},
  )


def _distance_table(by_head: np.ndarray) -> list[list]:
  """A header, then a row for each head; axial models (2, depth, heads) have a column "axis"."""
  rows = [[*place, f"{value:.6f}"] for place, value in np.ndenumerate(by_head)]
  if by_head.ndim == 2:
    return [["layer", "head", "pixels"], *rows]
  named = [[inside.AXES[axis], *rest] for axis, *rest in rows]
  return [["axis", "layer", "head", "pixels"], *named]


def features(
  model: LoadedModel, gallery: Gallery, done: Callable[[int], None], method: str
) -> InspectionResult:
  """A map of the representations of images, and their nearest neighbours.

  Args:
    model, gallery: as in `attention`.
    done: called with the number of images after each batch.
    method: of `representation.plane`.

  Raises:
    ValueError: as `representation.plane`.
  """
  images = gallery.squares(model.card)
  # The images are already cropped, so they are not resized again.
  whole = dataclasses.replace(model, card=dataclasses.replace(model.card, resize=0))
  vectors = predict.features(whole, images, batch_size=AT_A_TIME, done=done)
  places = representation.plane(vectors, method)
  neighbours, alike = representation.neighbours(vectors, NEIGHBOURS)
  title = f"{TITLES[method]} of {gallery.in_words()}"
  text = f"{title}."
  same = None
  if pairs := _pairs_of_classes(gallery, neighbours):
    same = sum(one == other for one, other in pairs) / len(pairs)
    text = f"{title}; the nearest neighbour of {same:.1%} has the same class"
    if len(pairs) < len(gallery):
      text += f" ({len(pairs):,} pairs in which both images have a label)"
    text += "."
  figure = inside.plane(places, gallery.labels, title)
  return InspectionResult(
    text,
    dict(images=len(gallery), same_class=same),
    [
      ("features.png", figure),
      ("features.svg", figure),
      ("neighbours.png", _neighbours_figure(images, gallery, neighbours)),
    ],
    {
      "features.csv": _features_table(gallery, places, neighbours),
      "features.npz": dict(
        features=vectors, places=places, neighbours=neighbours, similarities=alike
      ),
    },
  )


def _features_table(gallery: Gallery, places: np.ndarray, neighbours: np.ndarray) -> list[list]:
  """A header, then a row for each image: name, class, place in the plane, nearest neighbours."""
  names = gallery.names
  labels = gallery.labels or [""] * len(gallery)
  header = ["name", "class", "x", "y", *(f"neighbour {k + 1}" for k in range(neighbours.shape[1]))]
  rows = [
    [name, labels[i], *(f"{x:.6f}" for x in places[i]), *(names[j] for j in neighbours[i])]
    for i, name in enumerate(names)
  ]
  return [header, *rows]


def _pairs_of_classes(gallery: Gallery, neighbours: np.ndarray) -> list[tuple[str, str]]:
  """The classes of each image and of its nearest neighbour, where both have a label."""
  labels = gallery.labels
  if not labels:
    return []
  pairs = [(labels[i], labels[j]) for i, j in enumerate(neighbours[:, 0])]
  return [pair for pair in pairs if all(pair)]


def _neighbours_figure(images: np.ndarray, gallery: Gallery, neighbours: np.ndarray):
  """A figure of some images of all classes, each with its nearest neighbours."""
  labels = gallery.labels
  chosen = of_all_classes(labels or [""] * len(gallery), ROWS)
  pictures = [images[chosen], *(images[column] for column in neighbours[chosen].T)]
  classes = []
  if labels:
    classes = [[labels[j] for j in (i, *neighbours[i])] for i in chosen]
  return captions.picture_table(pictures, classes)


def mistakes(workdir: Path, count: int, gallery: Gallery | None = None) -> InspectionResult:
  """The most confident mistakes of each evaluation set of a workdir.

  A set whose images are not at hand has numbers without a picture, if another set has a picture.

  Args:
    workdir: the run's workdir.
    count: the most images shown for each set.
    gallery: the images; None: those that the run's settings name.

  Raises:
    ConfigError: there is no evaluation, or for no set all images can be read.
    OSError, ValueError: the predictions, or what was evaluated, cannot be read.
  """
  texts = []
  summary = {}
  pictures = []
  numbers = {}
  missing = []
  for path in records.evaluated(workdir):
    name = path.parent.name
    whose = results.whose(name, results.recorded(path.parent))
    wrong, total = records.mistakes(path)
    texts.append(_worst(whose, wrong, total))
    summary[name] = dict(mistakes=len(wrong), images=total)
    numbers[f"mistakes_{name}.csv"] = [results.COLUMNS, *wrong[:count]]
    if wrong:
      try:
        images = _images_of(wrong[:count], gallery or set_of(workdir, name), name)
      except ConfigError as error:
        missing.append(error)
        texts.append(str(error))
        continue
      lines = [f"{label(m.label)}, not {label(m.prediction)}\n{m.probability:.1%}" for m in wrong]
      pictures.append((f"mistakes_{name}.png", captions.figure(images, lines[:count], whose)))
  if missing and not pictures:
    raise missing[0]
  return InspectionResult(" ".join(texts), summary, pictures, numbers)


def set_of(workdir: Path, name: str) -> Gallery:
  """The images of an evaluation set in a run's settings.

  Raises:
    ConfigError: the settings have no such set, or its data is missing.
  """
  config = recorded.read_config(workdir, "give the images with --images")
  spec = config.evaluate.get(name)
  if spec is None or not spec.given():
    raise ConfigError(
      f"{workdir}/config.json does not tell where the images of the set {name!r} are; give them "
      "with --images."
    )
  source = datasets.opener_of(config.data).source(spec.scored())
  names = [source.name(i) for i in range(len(source))]
  return Gallery(names, lambda i: source[i].image, (), len(source), config.data.max_pixels)


def _worst(whose: str, wrong: list[records.Mistake], total: int) -> str:
  images = f"{total:,} image{'s' * (total != 1)}"
  if not wrong:
    return f"{whose}: no mistakes among {images}."
  first = wrong[0]
  are = "is" if len(wrong) == 1 else "are"
  return (
    f"{whose}: {len(wrong):,} of {images} {are} wrong; the most confident, {first.name}, is "
    f"{first.label} and was taken for {first.prediction} with {first.probability:.1%}."
  )


def _images_of(wrong: list[records.Mistake], gallery: Gallery, name: str) -> list[np.ndarray]:
  """The images of mistakes, small enough for a figure."""
  places = {_absolute(known): i for i, known in enumerate(gallery.names)}
  for mistake in wrong:
    if _absolute(mistake.name) not in places:
      raise ConfigError(
        f"{mistake.name} of the evaluation set {name!r} is not among the {len(places):,} images; "
        "give those that were evaluated with --images."
      )
  return [captions.sized(gallery.original(places[_absolute(each.name)])) for each in wrong]


def _absolute(name: str) -> str:
  """The name of an image as in the predictions of an evaluation, which opens absolute paths."""
  return files.as_written(paths.absolute(name))
