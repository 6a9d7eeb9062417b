"""Datasets of Hugging Face: folders on disk, the cache, splits, and what is refused."""

import json
import os
import sys

import pytest

from tests.data.opened import every, open_source, tree
from vit_jax.data import datasets as opened
from vit_jax.data import sources
from vit_jax.data.jpeg import BadImage
from vit_jax.data.sources import SourceError

datasets = pytest.importorskip("datasets")


@pytest.fixture(autouse=True)
def quiet():
  datasets.disable_progress_bars()


FEATURES = datasets.Features(
  {
    "img": datasets.Image(),
    "fine": datasets.ClassLabel(names=["cat", "dog"]),
    "many": datasets.List(datasets.ClassLabel(names=["a", "b", "c"])),
    "text": datasets.Value("string"),
    "size": datasets.Value("float32"),
  }
)


def some(count=5, features=FEATURES):
  columns = {
    "img": [{"bytes": b"%d" % i, "path": None} for i in range(count)],
    "fine": [i % 2 for i in range(count)],
    "many": [[i % 3, 2] if i % 3 < 2 else [] for i in range(count)],
    "text": [f"t{i % 2}" for i in range(count)],
    "size": [0.5] * count,
  }
  return datasets.Dataset.from_dict(columns, features=features)


def test_features_are_found_by_their_types_and_splits_by_their_names(tmp_path):
  parts = datasets.DatasetDict({"train": some().select([4, 0, 1, 3]), "test": some(2)})
  parts.save_to_disk(tmp_path / "d")
  spec = f"hf:{tmp_path}/d"
  train, half, test = (open_source(spec, split) for split in ("train", "train[:50%]", "test"))
  assert [(e.image, e.labels) for e in every(train)] == [
    (b"4", (0,)),
    (b"0", (0,)),
    (b"1", (1,)),
    (b"3", (1,)),
  ]
  assert train.class_names == ("cat", "dog")
  assert "images are in 'img', labels in 'fine'" in train.notes[0]
  assert sorted(map(half.labels, range(2))) == [(0,), (1,)]
  assert opened.shared_images(half, train).images == 2
  assert opened.shared_images(train, test) is None
  assert train[0].name.endswith("d train row 0")
  assert sources.named_parts(spec) == {"train": (spec, "train"), "test": (spec, "test")}
  for split in ("", "val"):
    with pytest.raises(SourceError, match=f"has the splits: train, test; name one, not '{split}'"):
      open_source(spec, split)


def test_a_column_that_may_name_splits_is_told(tmp_path):
  columns = {"image": [b"0", b"1"], "label": [0, 1], "data set": ["train", "test"]}
  datasets.Dataset.from_dict(columns | {"Split": [0, 1]}).save_to_disk(tmp_path / "d")
  said = [
    f"All rows of 'hf:{tmp_path}/d' are taken: its column {name!r} is not read."
    for name in ("data set", "Split")
  ]
  assert list(open_source(f"hf:{tmp_path}/d").notes) == said


def test_several_labels_and_names(tmp_path):
  some().save_to_disk(tmp_path / "d")
  many = open_source(f"hf:{tmp_path}/d", label_key="many")
  assert many.multi_label
  assert list(map(many.labels, range(3))) == [(0, 2), (1, 2), ()]
  assert open_source(f"hf:{tmp_path}/d", label_key="text").class_names == ("t0", "t1")
  with pytest.raises(SourceError, match="is 'float', but labels are names or whole"):
    open_source(f"hf:{tmp_path}/d", label_key="size")
  with pytest.raises(SourceError, match="Column 'size' of"):
    open_source(f"hf:{tmp_path}/d", image_key="size")


def test_what_the_library_has_cached_is_read_without_a_network(tmp_path, monkeypatch):
  monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
  folder = tmp_path / "owner___some_set/small/0.0.0/0123456789abcdef"
  some().save_to_disk(tmp_path / "d")
  folder.mkdir(parents=True)
  os.rename(tmp_path / "d/data-00000-of-00001.arrow", folder / "some_set-train.arrow")
  info = {
    "builder_name": "parquet",
    "dataset_name": "some_set",
    "config_name": "small",
    "version": {"version_str": "0.0.0", "major": 0, "minor": 0, "patch": 0},
    "splits": {"train": {"name": "train", "num_examples": 5, "dataset_name": "some_set"}},
    "features": json.loads((tmp_path / "d/dataset_info.json").read_text())["features"],
  }
  (folder / "dataset_info.json").write_text(json.dumps(info))
  for spec in ("hf:owner/some_set", "hf:owner/some_set:small"):
    source = open_source(spec, "train[:80%]")
    assert len(open_source(spec)) == 5
    assert source.class_names == ("cat", "dog")
    assert len(source) == 3  # one of two dogs is in the other part
  with pytest.raises(
    SourceError, match=r"Couldn't find cache .*load_dataset\('owner/some_set', 'x'"
  ):
    open_source("hf:owner/some_set:x")
  with pytest.raises(SourceError, match=r"import datasets; datasets\.load_dataset\('other'\)"):
    open_source("hf:other")


def test_an_example_without_an_image_is_broken(tmp_path):
  columns = {"image": [None, b"x"], "label": ["a", "b"]}
  datasets.Dataset.from_dict(columns).save_to_disk(tmp_path / "d")
  source = open_source(f"hf:{tmp_path}/d")
  with pytest.raises(BadImage, match="row 0 has no image"):
    source[0]
  assert source[1].image == b"x"


@pytest.mark.parametrize("pairs", [False, True])
def test_images_may_be_paths_and_are_found_in_other_sources(tmp_path, pairs):
  paths = ["../photos/a/0.png", str(tmp_path / "photos/b/1.png"), "../photos/a/gone.png"]
  tree(tmp_path / "photos", "a/0.png", "b/1.png", "b/2.png")
  columns = {"image": paths, "label": ["a", "b", "a"]}
  if pairs:
    columns["image"] = [{"bytes": None, "path": path} for path in paths]
    columns["image"].append({"bytes": b"x", "path": "../photos/b/2.png"})
    columns["label"].append("b")
  datasets.Dataset.from_dict(columns).save_to_disk(tmp_path / "d", num_shards=2)
  source = open_source(f"hf:{tmp_path}/d")
  assert [source[row].image for row in (0, 1)] == [b"a/0.png", b"b/1.png"]
  photos = open_source(f"folder:{tmp_path}/photos")
  assert opened.shared_images(source, photos).images == 2
  assert opened.shared_images(photos, source).images == 2
  assert opened.shared_images(source, source).images == len(columns["label"])


def test_damaged_folders(tmp_path):
  with pytest.raises(SourceError, match="cannot be read as a dataset that save_to_disk wrote"):
    open_source(f"hf:{tmp_path}")
  some().save_to_disk(tmp_path / "d")
  (file,) = (tmp_path / "d").glob("*.arrow")
  for data in (b"", file.read_bytes()[:200], b"ARROW1" * 50):
    file.write_bytes(data)
    with pytest.raises(SourceError, match="cannot be read as a dataset that save_to_disk wrote"):
      open_source(f"hf:{tmp_path}/d")


def test_without_the_library(monkeypatch):
  monkeypatch.setitem(sys.modules, "datasets", None)
  with pytest.raises(SourceError, match=r"needs the library datasets: pip install '\.\[hf\]'"):
    open_source("hf:mnist")
