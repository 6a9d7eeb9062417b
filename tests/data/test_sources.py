"""Every kind of source: what it holds, and what it says when asked wrongly."""

import json
import pathlib
import pickle
import shutil
import subprocess
import sys
import types

import numpy as np
import pytest

from tests.data import tfds_fixture
from vit_jax.data import sources
from vit_jax.data.sources import tfds


def open_source(spec: str, split: str = "", **options):
  return sources.open_source(spec, split=split, **{"num_classes": 10, **options})


def every(source) -> list[sources.Example]:
  return [source[index] for index in range(len(source))]


def assert_same(first, second) -> None:
  assert first.labels == second.labels
  assert first.name == second.name
  assert np.array_equal(first.image, second.image)


def test_unknown_kind_names_the_nearest_first():
  with pytest.raises(sources.SourceError) as caught:
    open_source("fodler:/data")
  message = str(caught.value)
  assert '"fodler:/data"' in message
  kinds = ("tfds:NAME", "folder:DIR", "digits", "synthetic")
  assert min(kinds, key=message.index) == "folder:DIR"


def test_a_folder_that_is_there_lacks_its_kind(tmp_path):
  with pytest.raises(sources.SourceError, match=f"data source; did you mean folder:{tmp_path}"):
    open_source(str(tmp_path))


@pytest.mark.parametrize("spec", ["", "tfds", "tfds:", "folder:", "folder", "digits:3", "digits:"])
def test_incomplete_specs_are_refused(spec):
  with pytest.raises(sources.SourceError, match="does not name a data source"):
    open_source(spec)


# --- digits ---


def test_digits_are_all_there_once_and_stratified():
  train, test = open_source("digits", "train"), open_source("digits", "test")
  assert (len(train), len(test)) == (1437, 360)
  assert not train.multi_label
  assert train.class_names == tuple("0123456789")
  names = [example.name.split("row ")[1] for source in (train, test) for example in every(source)]
  assert len(set(names)) == 1797
  for source in (train, test):
    counts = np.bincount([example.labels[0] for example in every(source)])
    np.testing.assert_allclose(counts / len(source), 0.1, atol=0.005)


def test_digits_use_the_whole_range_of_8_bits():
  images = np.stack([example.image for example in every(open_source("digits", "train"))])
  assert images.dtype == np.uint8
  assert images.shape == (1437, 8, 8)
  assert (images.min(), images.max()) == (0, 255)
  assert 128 in images  # 8 of 16


def test_digits_split_is_fixed():
  first = open_source("digits", "train")
  assert_same(first[5], open_source("digits", "train")[5])


def test_digits_have_two_splits():
  with pytest.raises(sources.SourceError, match='"train" and "test", not "validation"'):
    open_source("digits", "validation")


# --- synthetic ---


def test_synthetic_is_deterministic_and_knows_its_classes():
  source = open_source("synthetic", num_classes=7)
  assert len(source) == 1_281_167
  assert len(source.class_names) == 7
  assert_same(source[123], open_source("synthetic", num_classes=7)[123])
  assert source[0].image.dtype == np.uint8
  assert source[0].image.shape[2] == 3
  assert {source[index].labels[0] for index in range(500)} == set(range(7))


def test_synthetic_has_no_splits():
  with pytest.raises(sources.SourceError, match='split to ""'):
    open_source("synthetic", "train")


# --- folder ---


def write_folder(root: pathlib.Path) -> None:
  for name in ("b/2.JPG", "b/10.jpeg", "a/x.Png", "c/y.webp", "c/notes.txt", ".git/z.jpg"):
    (root / name).parent.mkdir(exist_ok=True, parents=True)
    (root / name).write_bytes(name.encode())
  (root / "README.md").write_text("not a class")


def test_folder_lists_images_of_sorted_classes(tmp_path):
  write_folder(tmp_path)
  source = open_source(f"folder:{tmp_path}")
  assert source.class_names == ("a", "b", "c")
  assert not source.multi_label
  seen = [(example.image.decode(), example.labels) for example in every(source)]
  assert seen == [("a/x.Png", (0,)), ("b/10.jpeg", (1,)), ("b/2.JPG", (1,)), ("c/y.webp", (2,))]
  assert source[2].name == str(tmp_path / "b" / "2.JPG")


def test_folder_reads_odd_names(tmp_path):
  for name in ("é ü.jpg", "日本.png", "a b's.webp"):
    (tmp_path / "klass ß").mkdir(exist_ok=True)
    (tmp_path / "klass ß" / name).write_bytes(name.encode())
  source = open_source(f"folder:{tmp_path}")
  assert {pathlib.Path(example.name).name for example in every(source)} == {
    example.image.decode() for example in every(source)
  }


def test_folder_errors(tmp_path):
  with pytest.raises(sources.SourceError, match="There is no folder"):
    open_source(f"folder:{tmp_path}/missing")
  with pytest.raises(sources.SourceError, match="has no folders inside"):
    open_source(f"folder:{tmp_path}")
  write_folder(tmp_path)
  with pytest.raises(sources.SourceError, match="has no split 'train'; set it to"):
    open_source(f"folder:{tmp_path}", "train")
  (tmp_path / "empty").mkdir()
  with pytest.raises(sources.SourceError, match=r'empty" has no \.jpg, \.jpeg, .*\.tiff'):
    open_source(f"folder:{tmp_path}")


def test_folder_missing_file_names_it(tmp_path):
  write_folder(tmp_path)
  source = open_source(f"folder:{tmp_path}")
  (tmp_path / "a" / "x.Png").unlink()
  with pytest.raises(FileNotFoundError, match=r"x\.Png"):
    source[0]


def write_classes(root: pathlib.Path, **counts: int) -> None:
  for name, count in counts.items():
    (root / name).mkdir(parents=True)
    for index in range(count):
      (root / name / f"{index:03}.png").touch()


def test_parts_of_a_folder_hold_every_image_of_each_class_once(tmp_path):
  write_classes(tmp_path, a=10, b=17, c=30)
  cuts = ["[:33%]", "[33%:90%]", "[90%:]"]
  parts = [open_source(f"folder:{tmp_path}", cut) for cut in cuts]
  names = sorted(example.name for part in parts for example in every(part))
  assert names == [example.name for example in every(open_source(f"folder:{tmp_path}"))]
  for part, share in zip(parts, (0.33, 0.57, 0.10), strict=True):
    counts = np.bincount([example.labels[0] for example in every(part)])
    assert (abs(counts - share * np.array([10, 17, 30])) <= 1).all()
  assert sum(example.labels == (2,) for example in every(parts[0])) == 10  # 33% of 30 are 9.9
  assert len({part.identity for part in parts}) == 3


def test_a_part_that_leaves_a_class_empty_names_the_class(tmp_path):
  write_classes(tmp_path, many=20, few=4)
  with pytest.raises(sources.SourceError, match=r'few" has 4 images, and none .* part \[90%:\]'):
    open_source(f"folder:{tmp_path}", "[90%:]")


# --- tfds ---


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
  """Directory with a multi-label and a single-label data set of 40 train and 10 test examples."""
  directory = tmp_path_factory.mktemp("tfds")
  tfds_fixture.write_multilabel_tfds(directory, num_examples=50, num_classes=7, seed=0)
  tfds_fixture.write_single_label_tfds(directory, num_examples=50, num_classes=5, seed=0)
  return directory


@pytest.fixture
def tfds_dir(prepared, monkeypatch):
  monkeypatch.setenv("TFDS_DATA_DIR", str(prepared))
  return prepared


def test_tfds_single_label(tfds_dir):
  source = open_source("tfds:tiny_single_label", "train")
  assert len(source) == 40
  assert not source.multi_label
  assert source.class_names == tuple(f"kind {kind}" for kind in range(5))
  assert sorted(example.labels[0] for example in every(source)) == sorted(
    index % 5 for index in range(50) if index % 5
  )
  assert all(example.image.startswith(b"\xff\xd8\xff") for example in every(source))
  assert source[17].name == "tfds:tiny_single_label/1.0.0 train example 17"


def test_tfds_multi_label(tfds_dir):
  source = open_source("tfds:tiny_multi_label:1.0.0", "train")
  assert source.multi_label
  assert len(source.class_names) == 7
  assert {len(example.labels) for example in every(source)} == {0, 1, 2, 3}
  assert all(0 <= label < 7 for example in every(source) for label in example.labels)


def test_tfds_sub_splits(tfds_dir):
  whole = every(open_source("tfds:tiny_single_label", "train"))
  parts = [
    example
    for split in ("train[:90%]", "train[90%:]")
    for example in every(open_source("tfds:tiny_single_label", split))
  ]
  assert parts == list(whole)  # with their names: an example has one, whichever part it is in
  both = open_source("tfds:tiny_single_label", "train[30:]+test")
  assert len(both) == 20
  names = [example.name.removeprefix("tfds:tiny_single_label/1.0.0 ") for example in every(both)]
  assert names == [
    *(f"train example {index}" for index in range(30, 40)),
    *(f"test example {index}" for index in range(10)),
  ]


def test_examples_are_numbered_over_all_files_of_a_split():
  split = lambda *lengths: types.SimpleNamespace(
    shard_lengths=lengths, filenames=[f"{lengths}-{number}" for number in range(len(lengths))]
  )
  splits = dict(train=split(3, 4, 5), test=split(2))
  builder = types.SimpleNamespace(info=types.SimpleNamespace(splits=splits))
  assert tfds._first_examples(builder) == {
    "(3, 4, 5)-0": ("train", 0),
    "(3, 4, 5)-1": ("train", 3),
    "(3, 4, 5)-2": ("train", 7),
    "(2,)-0": ("test", 0),
  }
  features = object.__new__(tfds.Features)
  features._title, features._firsts = "tfds:zoo/1.0.0", tfds._first_examples(builder)
  features._records = types.SimpleNamespace(place=lambda index: ("/data/(3, 4, 5)-2", index + 1))
  assert features.name(2) == "tfds:zoo/1.0.0 train example 10"


def test_tfds_takes_the_newest_version(tfds_dir, tmp_path, monkeypatch):
  for version in ("1.0.0", "9.0.0", "10.0.0"):
    target = tmp_path / "tiny_single_label" / version
    shutil.copytree(tfds_dir / "tiny_single_label" / "1.0.0", target)
    info = json.loads((target / "dataset_info.json").read_text())
    (target / "dataset_info.json").write_text(json.dumps({**info, "version": version}))
  monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
  assert "/10.0.0 " in open_source("tfds:tiny_single_label", "train")[0].name
  assert "/9.0.0 " in open_source("tfds:tiny_single_label:9.0.0", "train")[0].name


def test_tfds_config(tfds_dir, tmp_path, monkeypatch):
  shutil.copytree(tfds_dir / "tiny_single_label", tmp_path / "tiny_single_label" / "small")
  monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
  assert len(open_source("tfds:tiny_single_label/small", "train")) == 40
  with pytest.raises(sources.SourceError, match=r"no version but small"):
    open_source("tfds:tiny_single_label", "train")


def test_tfds_not_prepared_says_where_it_looked_and_what_to_run(tfds_dir):
  with pytest.raises(sources.SourceError) as caught:
    open_source("tfds:imagenet2012", "train")
  assert str(tfds_dir / "imagenet2012") in str(caught.value)
  assert "`python tools/prepare_data.py build imagenet2012` (it needs pip install" in str(
    caught.value
  )


def test_tfds_part_of_examples_as_they_were_written_is_told(
  tfds_dir, tmp_path, monkeypatch, caplog
):
  shutil.copytree(tfds_dir, tmp_path / "copy")
  monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "copy"))
  info = tmp_path / "copy" / "tiny_single_label" / "1.0.0" / "dataset_info.json"
  written = lambda ordered: info.write_text(
    json.dumps(json.loads(info.read_text()) | {"disableShuffling": ordered})
  )
  written(False)
  open_source("tfds:tiny_single_label", "train[90%:]")
  written(True)
  open_source("tfds:tiny_single_label", "train+test")
  assert not caplog.messages
  part = open_source("tfds:tiny_single_label", "train[90%:]")
  pickle.loads(pickle.dumps(part))  # nor by every worker again
  (said,) = caplog.messages
  assert "tfds:tiny_single_label were written without shuffling, so 'train[90%:]' is no" in said


def test_tfds_default_directory(monkeypatch, tmp_path):
  monkeypatch.delenv("TFDS_DATA_DIR", raising=False)
  monkeypatch.setenv("HOME", str(tmp_path))
  with pytest.raises(sources.SourceError, match=f"{tmp_path}/tensorflow_datasets/mnist"):
    open_source("tfds:mnist", "train")


def test_tfds_missing_version(tfds_dir):
  with pytest.raises(sources.SourceError, match=r"has only version 1\.0\.0"):
    open_source("tfds:tiny_single_label:2.0.0", "train")


@pytest.mark.parametrize("split", ["validation", "train[:0]", "train[:1%]", "train[", ""])
def test_tfds_wrong_split_lists_the_splits(tfds_dir, split):
  with pytest.raises(sources.SourceError, match=r"train \(40 examples\), test \(10 examples\)"):
    open_source("tfds:tiny_single_label", split)


def test_tfds_missing_feature_lists_the_features(tfds_dir):
  with pytest.raises(sources.SourceError, match=r'no feature "labels"; it has image, label'):
    open_source("tfds:tiny_single_label", "train", label_key="labels")
  with pytest.raises(sources.SourceError, match="not a class label"):
    open_source("tfds:tiny_single_label", "train", label_key="image")


@pytest.mark.parametrize("spec", ["tfds:../etc", "tfds:a b", "tfds:x:1", "tfds:/abs"])
def test_tfds_malformed(tfds_dir, spec):
  with pytest.raises(sources.SourceError, match=r"not of the form"):
    open_source(spec, "train")


def test_tfds_tfrecord_is_refused_with_the_command(tfds_dir, tmp_path, monkeypatch):
  target = tmp_path / "tiny_single_label"
  shutil.copytree(tfds_dir / "tiny_single_label", target)
  path = target / "1.0.0" / "dataset_info.json"
  path.write_text(path.read_text().replace("array_record", "tfrecord"))
  for file in list((target / "1.0.0").glob("*array_record*")):
    file.rename(file.with_name(file.name.replace("array_record", "tfrecord")))
  monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
  with pytest.raises(
    sources.SourceError, match=r"`python tools/prepare_data\.py convert .*1\.0\.0` adds files"
  ):
    open_source("tfds:tiny_single_label", "train")


def test_tfds_array_record_beside_another_format(tfds_dir, tmp_path, monkeypatch):
  """As `tfds convert_format` leaves it: the metadata still name the first format."""
  shutil.copytree(tfds_dir / "tiny_single_label", tmp_path / "tiny_single_label")
  path = tmp_path / "tiny_single_label" / "1.0.0" / "dataset_info.json"
  info = {**json.loads(path.read_text()), "fileFormat": "tfrecord"}
  path.write_text(json.dumps({**info, "alternativeFileFormats": ["array_record"]}))
  expected = every(open_source("tfds:tiny_single_label", "train[5:]"))
  monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
  for one, other in zip(
    every(open_source("tfds:tiny_single_label", "train[5:]")), expected, strict=True
  ):
    assert_same(one, other)


def test_identity_tells_what_the_examples_are_and_not_where(tfds_dir, tmp_path):
  for name in ("one", "moved", "other"):
    (tmp_path / name).mkdir()
    write_folder(tmp_path / name)
  (tmp_path / "other" / "b" / "10.jpeg").rename(tmp_path / "other" / "a" / "10.jpeg")
  one, moved, other = (
    open_source(f"folder:{tmp_path / name}").identity for name in ("one", "moved", "other")
  )
  assert one == moved
  others = [
    other,
    *(open_source("digits", split).identity for split in ("train", "test")),
    *(open_source("synthetic", num_classes=classes).identity for classes in (3, 4)),
    *(open_source("tfds:tiny_single_label", split).identity for split in ("train", "test")),
    open_source("tfds:tiny_multi_label", "train").identity,
  ]
  assert len({one, *others}) == 9


def test_labels_and_names_alone_are_those_of_the_example(tfds_dir, tmp_path):
  write_folder(tmp_path / "folder")
  for source in (
    open_source("digits", "test"),
    open_source("synthetic"),
    open_source(f"folder:{tmp_path / 'folder'}"),
    open_source(f"tfds:{tfds_fixture.SINGLE_LABEL}", "train"),
    open_source(f"tfds:{tfds_fixture.MULTI_LABEL}", "train"),
  ):
    for index in range(4):
      example = source[index]
      assert (source.labels(index), source.name(index)) == (example.labels, example.name)


def test_sources_are_pickled_for_worker_processes(tfds_dir, tmp_path):
  write_folder(tmp_path)
  for source in (
    open_source("digits", "test"),
    open_source("synthetic"),
    open_source(f"folder:{tmp_path}"),
    open_source("tfds:tiny_multi_label", "train[:50%]"),
  ):
    copy = pickle.loads(pickle.dumps(source))
    assert len(copy) == len(source)
    assert copy.class_names == source.class_names
    assert copy.multi_label == source.multi_label
    assert_same(copy[3], source[3])


def test_tensorflow_is_never_imported(tfds_dir):
  code = (
    "import sys; from vit_jax.data import sources, images, pipeline;"
    "sources.open_source('tfds:tiny_single_label', split='train', num_classes=5)[0];"
    "print('tensorflow' in sys.modules)"
  )
  root = pathlib.Path(sources.__file__).parents[3]
  done = subprocess.run(
    [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True
  )
  assert done.stdout.strip() == "False"
