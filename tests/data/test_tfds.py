"""Reading datasets that TFDS prepared."""

import json
import shutil
import types

import pytest

from tests.data import tfds_fixture
from tests.data.opened import every, open_source
from vit_jax.config import RunError
from vit_jax.data import sources
from vit_jax.data.jpeg import BadImage
from vit_jax.data.sources import tfds

SINGLE = "tfds:tiny_single_label"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
  """Directory with a multi-label and a single-label dataset of 40 train and 10 test examples."""
  directory = tmp_path_factory.mktemp("tfds")
  tfds_fixture.write_multilabel_tfds(directory, num_examples=50, num_classes=7, seed=0)
  tfds_fixture.write_single_label_tfds(directory, num_examples=50, num_classes=5, seed=0)
  return directory


@pytest.fixture
def tfds_dir(prepared, monkeypatch):
  monkeypatch.setenv("TFDS_DATA_DIR", str(prepared))
  return prepared


@pytest.fixture
def copied(tfds_dir, tmp_path, monkeypatch):
  """A function that copies the single-label dataset, with other metadata."""

  def copy(place="1.0.0", **changes):
    target = tmp_path / "tiny_single_label" / place
    shutil.copytree(tfds_dir / "tiny_single_label/1.0.0", target, dirs_exist_ok=True)
    path = target / "dataset_info.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    return target

  return copy


def test_tfds_single_label(tfds_dir):
  source = open_source(SINGLE, "train")
  examples = every(source)
  assert len(source) == 40
  assert not source.multi_label
  assert source.class_names == tuple(f"kind {kind}" for kind in range(5))
  labels = sorted(example.labels[0] for example in examples)
  assert labels == sorted(index % 5 for index in range(50) if index % 5)
  assert all(example.image.startswith(b"\xff\xd8\xff") for example in examples)
  assert examples[17].name == "tfds:tiny_single_label/1.0.0 train example 17"


def test_a_digest_in_the_metadata_is_part_of_the_identity(copied):
  """Without one it is as it has always been, so that runs resume."""
  folder = copied()
  known = "tfds:tiny_single_label/1.0.0 train image"
  assert open_source(SINGLE, "train").identity == f"{known} label"
  assert open_source(SINGLE, "train", label_key="").identity == known
  (folder / "metadata.json").write_text(json.dumps({tfds.DIGEST: "0123", "other": 1}))
  assert open_source(SINGLE, "train").identity == f"{known} label 0123"
  (folder / "metadata.json").write_text("{")
  with pytest.raises(sources.SourceError, match="are damaged"):
    open_source(SINGLE, "train")


def test_tfds_multi_label(tfds_dir):
  source = open_source("tfds:tiny_multi_label:1.0.0", "train")
  examples = every(source)
  assert source.multi_label
  assert len(source.class_names) == 7
  assert {len(example.labels) for example in examples} == {0, 1, 2, 3}
  assert all(0 <= label < 7 for example in examples for label in example.labels)
  assert [source.labels(i) for i in range(40)] == [example.labels for example in examples]
  # Vectors of zeros and ones are no lists of classes.
  with pytest.raises(sources.SourceError, match=r"has the labels \[1, 0, 0\], one of .*multi-hot"):
    source._as_labels({"label": [1, 0, 0]})


def test_tfds_sub_splits(tfds_dir):
  first, rest, whole = (
    every(open_source(SINGLE, split)) for split in ("train[:90%]", "train[90%:]", "train")
  )
  assert [*first, *rest] == whole  # also the names: an example has the same name in every part
  both = every(open_source(SINGLE, "train[30:]+test"))
  names = [example.name.removeprefix("tfds:tiny_single_label/1.0.0 ") for example in both]
  train, test = ([f"{s} example {i}" for i in range(40)] for s in ("train", "test"))
  assert names == [*train[30:], *test[:10]]


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


def test_tfds_takes_the_newest_version(copied):
  for version in ("1.0.0", "9.0.0", "10.0.0"):
    copied(version, version=version)
  assert "/10.0.0 " in open_source(SINGLE, "train")[0].name
  assert "/9.0.0 " in open_source(f"{SINGLE}:9.0.0", "train")[0].name


def test_tfds_config(copied):
  copied("small/1.0.0")
  assert len(open_source(f"{SINGLE}/small", "train")) == 40
  with pytest.raises(sources.SourceError, match=r"has no version, only small"):
    open_source(SINGLE, "train")


def test_tfds_part_of_examples_as_they_were_written_is_told(copied, caplog):
  copied(disableShuffling=False)
  open_source(SINGLE, "train[90%:]")
  copied(disableShuffling=True)
  open_source(SINGLE, "train+test")
  assert not caplog.messages
  open_source(SINGLE, "train[90%:]")
  (said,) = caplog.messages
  assert "tfds:tiny_single_label were written without shuffling, so 'train[90%:]' is no" in said


NO_SPLITS = ("validation", "train[:0]", "train[:1%]", "train[", "")


@pytest.mark.parametrize(
  ("spec", "split", "options", "message"),
  [
    ("imagenet2012", "train", {}, r"{}/imagenet2012; .* build imagenet2012` \(it needs pip"),
    ("tiny_single_label:2.0.0", "train", {}, r"has only version 1\.0\.0"),
    *((bad, "train", {}, "not of the form") for bad in ("../etc", "a b", "x:1", "/abs")),
    *(("tiny_single_label", x, {}, r"train \(40 .*\), test \(10 examples\)") for x in NO_SPLITS),
    ("tiny_single_label", "train", dict(label_key="labels"), 'no feature "labels"; it has image'),
    ("tiny_single_label", "train", dict(label_key="image"), "not a class label"),
  ],
)
def test_what_there_is_not(tfds_dir, spec, split, options, message):
  with pytest.raises(sources.SourceError, match=message.format(tfds_dir)):
    open_source(f"tfds:{spec}", split, **options)


def test_tfds_tfrecord_is_refused_with_the_command(copied):
  folder = copied(fileFormat="tfrecord")
  for file in list(folder.glob("*array_record*")):
    file.rename(file.with_name(file.name.replace("array_record", "tfrecord")))
  message = r"`vit-jax prepare convert .*1\.0\.0` adds files"
  with pytest.raises(sources.SourceError, match=message):
    open_source(SINGLE, "train")


def test_tfds_array_record_beside_another_format(copied):
  """After `tfds convert_format` the metadata still name the first format."""
  expected = every(open_source(SINGLE, "train[5:]"))
  copied(fileFormat="tfrecord", alternativeFileFormats=["array_record"])
  assert every(open_source(SINGLE, "train[5:]")) == expected


@pytest.mark.parametrize("content", ["{", "[]", '{"name": 3}'])
def test_damaged_metadata_are_one_sentence(copied, content):
  (copied() / "dataset_info.json").write_text(content)
  with pytest.raises(sources.SourceError, match=r"The metadata in .* are damaged"):
    open_source(SINGLE, "train")


def training_file(folder):
  (path,) = folder.glob("tiny_single_label-train*array_record-*")
  return path


@pytest.mark.parametrize("keep", [None, 0, 0.5])
def test_a_file_that_is_missing_or_short_is_no_broken_image(copied, keep):
  path = training_file(copied())
  data = path.read_bytes()
  path.unlink()
  if keep is not None:
    path.write_bytes(data[: int(keep * len(data))])
  source = open_source(SINGLE, "train")
  for read in (source.__getitem__, source.labels):
    with pytest.raises(RunError, match=r'Record 0 of ".*array_record-.*; the file is missing or d'):
      read(0)


def test_a_damaged_record_is_a_broken_image(copied):
  path = training_file(copied())
  data = bytearray(path.read_bytes())
  data[len(data) // 2] ^= 1
  path.write_bytes(data)
  source = open_source(SINGLE, "train")
  broken = []
  for index in range(len(source)):
    try:
      source[index]
    except BadImage as error:
      broken.append(str(error).split(" example ")[0])
  assert set(broken) == {"tfds:tiny_single_label/1.0.0 train"}
  assert len(broken) < len(source)
