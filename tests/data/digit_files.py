"""Digits of scikit-learn in each format: what a source that reads them must hold is known."""

import functools
import io
import json
import pathlib
import tarfile
from typing import NamedTuple

import pytest

from tests.data.opened import open_source
from tests.data.pictures import saved
from vit_jax.data import sources

COUNT = 60  # of the training images


class Made(NamedTuple):
  """Files with the digits.

  Attributes:
    spec: names the source.
    rows: of each image, its place among the digits.
    split: that must be named, such as "train".
  """

  spec: str
  rows: list[int]
  split: str = ""


@functools.cache
def digits() -> list[tuple[bytes, int]]:
  """The first images as PNG files, with their labels."""
  source = open_source("digits", "train")
  return [(saved(source[i].image, "PNG"), source.labels(i)[0]) for i in range(COUNT)]


def files(root: pathlib.Path) -> list[tuple[str, int]]:
  """Writes the images as files; (name, label) of each, in the order of the names."""
  root.mkdir()
  images = [(f"{i:03}.png", data, label) for i, (data, label) in enumerate(digits())]
  for name, data, _ in images:
    (root / name).write_bytes(data)
  return [(name, label) for name, _, label in images]


def folder(root: pathlib.Path) -> Made:
  """A folder for each class."""
  for i, (data, label) in enumerate(digits()):
    (root / f"{label}").mkdir(exist_ok=True, parents=True)
    (root / f"{label}/{i:03}.png").write_bytes(data)
  return Made(f"folder:{root}", sorted(range(COUNT), key=lambda i: (digits()[i][1], i)))


def csv(root: pathlib.Path) -> Made:
  """A table beside a folder of all files."""
  root.mkdir()
  rows = files(root / "images")
  (root / "list.csv").write_text("".join(f"images/{name},{label}\n" for name, label in rows))
  return Made(f"csv:{root}/list.csv", list(range(COUNT)))


def parquet(root: pathlib.Path) -> Made:
  """Two files with row groups."""
  import pyarrow as pa
  from pyarrow import parquet

  (root / "data").mkdir(parents=True)
  images, labels = zip(*digits(), strict=True)
  for part, rows in enumerate((slice(0, 25), slice(25, 60))):
    columns = pa.table({"image": images[rows], "label": labels[rows]})
    parquet.write_table(columns, root / f"data/train-{part}.parquet", row_group_size=7)
  return Made(f"parquet:{root}/data", list(range(COUNT)))


def hf(root: pathlib.Path) -> Made:
  """What `save_to_disk` writes, in three files."""
  datasets = pytest.importorskip("datasets", reason="datasets is not installed (extra `hf`)")
  datasets.disable_progress_bars()
  images, labels = zip(*digits(), strict=True)
  kinds = {"image": datasets.Image(), "label": datasets.ClassLabel(names=list("0123456789"))}
  columns = {"image": [{"bytes": image, "path": None} for image in images], "label": labels}
  made = datasets.Dataset.from_dict(columns, features=datasets.Features(kinds))
  made.save_to_disk(root, num_shards=3)
  return Made(f"hf:{root}", list(range(COUNT)))


def wds(root: pathlib.Path) -> Made:
  """Two tar files, with labels and metadata beside the images."""
  root.mkdir()
  for shard, part in enumerate((range(25), range(25, 60))):
    with tarfile.open(root / f"{shard}.tar", "w") as tar:
      for i in part:
        image, label = digits()[i]
        members = {"png": image, "cls": str(label).encode(), "json": json.dumps({}).encode()}
        for kind, data in members.items():
          header = tarfile.TarInfo(f"{i:03}.{kind}")
          header.size = len(data)
          tar.addfile(header, io.BytesIO(data))
  return Made(f"wds:{root}/{{0..1}}.tar", list(range(COUNT)))


def tfds(root: pathlib.Path) -> Made:
  """A prepared dataset; TFDS_DATA_DIR must be `root`."""
  import tensorflow_datasets

  from tests.data import tfds_fixture

  features = {
    "image": tensorflow_datasets.features.Image(encoding_format="png"),
    "label": tensorflow_datasets.features.ClassLabel(names=list("0123456789")),
  }
  examples = [{"image": io.BytesIO(image), "label": label} for image, label in digits()]
  tfds_fixture.write(root, "some_digits", features, {"train": examples})
  return Made("tfds:some_digits", list(range(COUNT)), "train")


MAKERS = dict(folder=folder, csv=csv, parquet=parquet, hf=hf, wds=wds, tfds=tfds)


def original(rows) -> sources.Source:
  """The same digits from scikit-learn."""
  return sources.Selected(open_source("digits", "train"), sources.Listed(rows), "the first")
