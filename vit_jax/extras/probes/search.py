"""The images of a folder that are most similar to other images, by their features."""

import dataclasses
import os
import pathlib
from collections.abc import Sequence

import numpy as np
from PIL import Image

from vit_jax.config import Data, Dataset
from vit_jax.data import datasets, sources
from vit_jax.data.images import BadImage
from vit_jax.data.sources import Source
from vit_jax.evaluation import nearest_neighbours
from vit_jax.evaluation.examples import to_look_at
from vit_jax.evaluation.features import unit
from vit_jax.extras.probes import extraction
from vit_jax.extras.probes.cache import Cache
from vit_jax.extras.report import document, thumbnails
from vit_jax.extras.report.document import Picture, Section
from vit_jax.inference.predict import MAX_PIXELS, encoded_or_pixels
from vit_jax.recipes.loading import columns_named, keys_of
from vit_jax.storage import paths

SIDE = 160  # pixels of a picture on the page


@dataclasses.dataclass(frozen=True)
class Found:
  """The images that are nearest to a query.

  Attributes:
    query: the file.
    names: of the nearest images, nearest first.
    rows: their numbers in the source.
    similarities: the cosine of their features and those of the query.
  """

  query: str
  names: Sequence[str]
  rows: Sequence[int]
  similarities: Sequence[float]


def find(kept: Cache, images: str, split: str, queries: Sequence[pathlib.Path], count: int):
  """Searches a source of images for the nearest ones to each query.

  Images of the source that cannot be read are left out, which the user is told.

  Args:
    kept: has the model, and keeps the features of the source.
    images: a folder with images, or any other source; labels are not needed.
    split: of the source; "": all.
    queries: files.
    count: the most images for each query.

  Returns:
    A `Found` for each query, and the source.

  Raises:
    ConfigError, ValueError, OSError: there are no such images, or none of them or not all queries
      can be read.
  """
  opener = datasets.opener_of(Data(), kept.progress)
  spec, keys = keys_of(images)
  spec = sources.meant(spec)
  keys["label_key"] = sources.label_key_of(spec, split, keys.get("label_key", Dataset().label_key))
  with columns_named():
    named = opener.open("The images", Dataset(spec, split=split, **keys))
  wanted = kept.model.features(queries, batch_size=kept.batch_size)
  features = kept.features(named, "the images", patches=False)
  readable = extraction.readable(features)
  vectors = unit(features["pre_logits"][readable])
  found = nearest_neighbours.nearest(vectors, unit(wanted), min(count, len(vectors)))
  source = named.source
  result = []
  for query, similarities, places in zip(queries, *found, strict=True):
    rows = readable[places]
    names = [source.name(row) for row in rows.tolist()]
    result.append(Found(str(query), names, rows.tolist(), similarities.tolist()))
  return result, source


def lines(found: Sequence[Found]) -> list[tuple[str, str, str]]:
  """A row for each image: the query, the similarity and the name."""
  return [
    (each.query, f"{similarity:.4f}", name)
    for each in found
    for similarity, name in zip(each.similarities, each.names, strict=True)
  ]


def values(found: Sequence[Found]) -> list[dict]:
  """The content for JSON."""
  return [
    {
      "query": each.query,
      "nearest": [
        {"image": name, "similarity": similarity}
        for name, similarity in zip(each.names, each.similarities, strict=True)
      ],
    }
    for each in found
  ]


def page(found: Sequence[Found], source: Source, weights: str, images: str, split: str) -> str:
  """The page with the queries and their nearest images; it needs no network.

  Args:
    found: the result of `find`.
    source: the images.
    weights, images, split: as the user named them.
  """
  words = f"{images} {split}".strip()
  facts = [("weights", weights), ("images", f"{words} ({len(source):,} images)")]
  folder = os.path.join(paths.absolute(images), "")
  sections = [section(each, source, folder) for each in found]
  return document.html("Nearest images", document.Lead(facts=facts), sections)


def section(each: Found, source: Source, folder: str) -> Section:
  """A query and its nearest images; names in `folder` are shown without it."""
  query = Section("Query", pictures=[picture(pathlib.Path(each.query), each.query)])
  shown = [
    picture(source[row].image, f"{similarity:.3f} {name.removeprefix(folder)}")
    for row, name, similarity in zip(each.rows, each.names, each.similarities, strict=True)
  ]
  nearest = Section("Nearest, with the cosine similarity of the features", pictures=shown)
  return Section(pathlib.Path(each.query).name, sections=[query, nearest])


def picture(image: pathlib.Path | bytes | np.ndarray, caption: str) -> Picture:
  """A small picture of an image; an empty one if it cannot be read any more."""
  try:
    if isinstance(image, pathlib.Path):
      image = encoded_or_pixels(image)
    small = thumbnails.scaled(Image.fromarray(to_look_at(image, max_pixels=MAX_PIXELS)), SIDE)
  except (BadImage, OSError):
    small = Image.new("RGB", (SIDE, SIDE))
  data = thumbnails.jpeg(np.asarray(small))
  return Picture(data, "jpeg", caption, caption, small=True)
