"""The views of `vit-jax visualize` that draw something over images, or beside them."""

import functools
import itertools
import pathlib
from collections.abc import Callable, Sequence

import numpy as np

from vit_jax.evaluation.examples import visible
from vit_jax.extras.inspection import maps as attention_maps
from vit_jax.extras.inspection import patches as patch_colouring
from vit_jax.extras.inspection.gallery import Gallery, seen_box
from vit_jax.extras.inspection.shown import InspectionResult
from vit_jax.extras.plots import captions, overlay
from vit_jax.extras.plots.labels import label
from vit_jax.inference import LoadedModel

BEST = 2  # classes in a caption
HEADS_IN_A_ROW = 8
# The tokens that the head reads, by how they are pooled; otherwise it reads the patches.
TOKENS = {
  "class_token": "the class token",
  "distilled": "class token and distillation token (mean)",
}
MAP_SHARE = 0.2  # the fraction of a map's patches that counts as its brightest


def attention(
  model: LoadedModel,
  gallery: Gallery,
  on_image: Callable[[], None],
  raw: tuple[int, int] | None = None,
) -> InspectionResult:
  """Attention Rollout over images, or one head's attention; raises as `maps`' functions.

  Args:
    model: the model.
    gallery: the images.
    on_image: called after each image.
    raw: the layer and the head, both from 0; None: the rollout.
  """
  look = attention_maps.rollout
  what = "Attention Rollout"
  if raw:
    layer, head = raw
    look = functools.partial(attention_maps.raw, layer=layer, head=head)
    what = f"Attention of layer {layer}, head {head}"
  images = gallery.squares(model.card)
  maps, logits = look(model.module, model.params, images, on_image=on_image)
  best = [()] * len(gallery)
  if model.classifies:
    best = best_classes(model, logits)
  rows = [
    [i, name, *itertools.chain(*classes)]
    for i, (name, classes) in enumerate(zip(gallery.names, best, strict=True))
  ]
  share = float(np.mean([brightest(each) for each in maps]))
  lines = names_of(gallery)
  if model.classifies:
    lines = ["\n".join(f"{label(name)} {x:.1%}" for name, x in classes) for classes in best]
  title = f"{what}. {overlay.CAPTION}"
  return InspectionResult(
    f"{what} over {gallery.in_words()}: the brightest fifth of the patches gets {share:.0%} of "
    f"the map. {overlay.CAPTION}",
    dict(images=len(gallery), brightest_fifth=share),
    _pairs("attention", title, model, gallery, maps, lines, overlay.overlay),
    {"attention.npz": dict(maps=maps, logits=logits), "attention.csv": [_header(best), *rows]},
  )


def heads(model: LoadedModel, gallery: Gallery, on_image: Callable[[], None]) -> InspectionResult:
  """The attention of each head of the last layer over images; raises as `maps.heads`."""
  images = gallery.squares(model.card)
  maps, _ = attention_maps.heads(model.module, model.params, images, on_image=on_image)
  whose = TOKENS.get(model.module.pool, "all patches (mean)")
  what = f"Attention of {whose} in the last layer, {model.module.depth - 1}, by head"
  rows = []
  for name, image, of_image in zip(names_of(gallery), images, maps, strict=True):
    drawn = [(f"head {i}", overlay.heat(each)) for i, each in enumerate(of_image)]
    across = -(-len(drawn) // -(-len(drawn) // HEADS_IN_A_ROW))
    lines = [drawn[first : first + across] for first in range(0, len(drawn), across)]
    rows += [[(name, visible(image)[..., :3]), *lines[0]], *([(), *line] for line in lines[1:])]
  return InspectionResult(
    f"{what}, over {gallery.in_words()}. {overlay.CAPTION}",
    dict(images=len(gallery), layer=model.module.depth - 1, heads=maps.shape[1]),
    [("heads.png", captions.sheet(rows, f"{what}. {overlay.CAPTION}"))],
    {"heads.npz": dict(maps=maps)},
  )


def patches(model: LoadedModel, gallery: Gallery, on_image: Callable[[], None]) -> InspectionResult:
  """The features of patches as colours; raises as the functions of `patch_colouring`."""
  images = gallery.squares(model.card)
  features = patch_colouring.patch_features(model.module, model.params, images, on_image=on_image)
  found = patch_colouring.patch_colours(features)
  shares = ", ".join(f"{share:.1%}" for share in found.variance)
  words = f"{patch_colouring.CAPTION} They hold {shares} of the variance."
  title = f"Features of patches as colours. {words}"
  return InspectionResult(
    f"Features of the patches of {gallery.in_words()} as colours. {words}",
    dict(images=len(gallery), variance=found.variance.tolist()),
    _pairs("patches", title, model, gallery, found.colours, names_of(gallery), overlay.coloured),
    {"patches.npz": found._asdict()},
  )


def names_of(gallery: Gallery) -> list[str]:
  """The names of images for a picture, without their folders."""
  return [label(pathlib.PurePath(name).name) for name in gallery.names]


def best_classes(model: LoadedModel, logits: np.ndarray) -> list[list[tuple[str, float]]]:
  """The two most probable classes of each image, with their probabilities."""
  probabilities = np.asarray(model.probabilities(logits))
  names = model.class_names
  order = np.argsort(-probabilities, axis=1, kind="stable")[:, :BEST]
  return [
    [(names[k], float(row[k])) for k in best]
    for row, best in zip(probabilities, order, strict=True)
  ]


def brightest(attention: np.ndarray) -> float:
  """The fraction of an attention map that its brightest fifth of patches holds."""
  values = np.sort(attention.flatten().astype(np.float64))[::-1]
  return float(values[: max(1, round(MAP_SHARE * len(values)))].sum() / max(values.sum(), 1e-30))


def _pairs(what, title, model, gallery, values, lines, draw):
  """Each image beside `draw` of its values, at its own size; then all pairs in one figure."""
  small = []
  for i, of_image in enumerate(values):
    image = gallery.original(i)
    pair = overlay.pair(image, of_image, seen_box(*image.shape[:2], model.card), draw)
    small.append(captions.sized(pair))
    yield f"{what}/{i:03d}.png", pair
  yield f"{what}.png", captions.figure(small, lines, title)


def _header(best: Sequence) -> list[str]:
  columns = [f"{what} {k + 1}" for k in range(len(best[0])) for what in ("class", "probability")]
  return ["number", "name", *columns]
