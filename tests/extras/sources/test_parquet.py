"""Parquet files: columns, splits, row groups, and what is refused."""

import base64
import concurrent.futures
import json
import os
import time

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.data import digit_files
from tests.data.opened import every, open_source, tree
from vit_jax.data import datasets, sources
from vit_jax.data.jpeg import BadImage
from vit_jax.data.sources import SourceError
from vit_jax.extras.sources import parquet as parquet_source
from vit_jax.storage.base import ChangedError

CLASSES = {"names": ["cat", "dog"], "_type": "ClassLabel"}


def write(path, columns, *, features=None, **options):
  """Writes a file with columns, and the metadata of Hugging Face if there are features."""
  path.parent.mkdir(exist_ok=True, parents=True)
  rows = pa.table(columns)
  if features:
    rows = rows.replace_schema_metadata(
      {"huggingface": json.dumps({"info": {"features": features}})}
    )
  parquet.write_table(rows, path, **options)
  return f"parquet:{path}"


def images(count, first=0):
  return [b"%d" % i for i in range(first, first + count)]


def test_a_file_of_a_folder_is_the_same_file(tmp_path):
  spec, *_ = digit_files.parquet(tmp_path / "digits")
  whole, last = open_source(spec), open_source(f"{spec}/train-1.parquet")
  assert datasets.shared_images(whole, last).images == 35


def test_the_columns_of_hugging_face_are_found(tmp_path):
  columns = {
    "img": [{"bytes": b"a", "path": "1.jpg"}, {"bytes": b"b", "path": None}],
    "fine": [1, 0],
  }
  features = {"img": {"_type": "Image"}, "fine": CLASSES}
  source = open_source(write(tmp_path / "a.parquet", columns, features=features))
  assert source.class_names == ("cat", "dog")
  assert [(e.image, e.labels) for e in every(source)] == [(b"a", (1,)), (b"b", (0,))]
  assert "images are in 'img', labels in 'fine'" in source.notes[0]
  with pytest.raises(SourceError, match=r"label_key='x': there is no such column"):
    open_source(f"parquet:{tmp_path}/a.parquet", label_key="x")


LISTS = {"label": {"feature": CLASSES, "_type": "List"}}


@pytest.mark.parametrize(
  ("labels", "features", "names", "numbers"),
  [
    (["b", "a", "b"], None, ("a", "b"), [(1,), (0,), (1,)]),
    ([10, 1, 2], None, ("1", "2", "10"), [(2,), (0,), (1,)]),
    (["10", "2", "-3"], None, ("-3", "2", "10"), [(2,), (1,), (0,)]),
    (["10", "2", "b"], None, ("10", "2", "b"), [(0,), (1,), (2,)]),
    ([["b", "a"], [], ["a"]], None, ("a", "b"), [(1, 0), (), (0,)]),
    ([True, False, True], None, ("False", "True"), [(1,), (0,), (1,)]),
    ([[0, 1], [2, 1], [0, 2]], None, ("0", "1", "2"), [(0, 1), (2, 1), (0, 2)]),
    ([[], [0, 1], [1]], None, ("0", "1"), [(), (0, 1), (1,)]),
    ([[1], [1, 0], [0]], LISTS, ("cat", "dog"), [(1,), (1, 0), (0,)]),
  ],
)
def test_labels_are_names_or_numbers_or_lists(tmp_path, labels, features, names, numbers):
  columns = {"image": images(3), "label": labels}
  spec = write(tmp_path / "a.parquet", columns, features=features, row_group_size=2)
  source = open_source(spec)
  assert source.class_names == names
  assert [source.labels(row) for row in range(3)] == numbers
  assert source.multi_label == isinstance(labels[0], list)


@pytest.mark.parametrize(
  "labels",
  [
    [[1, 0, 0, 1], [0, 1, 0, 0]],
    [[1, 0], [0, 1]],
    [[True, False], [False, True]],
    [["0", "1"], ["1", "0"]],
    pa.array([[1, 0, 0], [0, 1, 0]], pa.list_(pa.int8(), 3)),
    pa.array([[1, 0, 0], [0, 1, 0]], pa.large_list(pa.uint8())),
    [[3, 0, 2], [0, 0, 1]],  # how often each class is there
  ],
)
@pytest.mark.parametrize("features", [None, LISTS])
def test_vectors_of_zeros_and_ones_are_no_lists_of_classes(tmp_path, labels, features):
  columns = {"image": images(2), "label": labels}
  spec = write(tmp_path / "a.parquet", columns, features=features)
  with pytest.raises(SourceError, match=r"a.parquet.*(multi-hot|are none of the 2 classes)"):
    open_source(spec)


@pytest.mark.parametrize("labels", [["cat", "", " "], [["cat"], ["cat", ""], [" "]]])
def test_empty_labels_are_no_class(tmp_path, labels):
  spec = write(tmp_path / "a.parquet", {"image": images(3), "label": labels})
  with pytest.raises(SourceError, match=r"a\.parquet.*: 2 labels are empty, the first in row 1;"):
    open_source(spec)
  assert len(open_source(spec, label_key="")) == 3


def test_each_column_of_images_is_data_of_its_own(tmp_path):
  """Else a cache of one would be taken for the other."""
  columns = {"left": images(2), "right": images(2, 2), "img": images(2, 4), "label": ["a", "b"]}
  spec = write(tmp_path / "a.parquet", columns)
  keys = ("image", "img", "left", "right")
  found = [open_source(spec, image_key=key).identity for key in keys]
  assert found[0] == found[1]
  assert len({*found}) == 3


def test_images_may_be_paths(tmp_path):
  (tmp_path / "x").mkdir()
  for name in ("a", "b"):
    (tmp_path / f"x/{name}.png").write_text(name)
  paths = ["x/a.png", str(tmp_path / "x/b.png")]
  source = open_source(write(tmp_path / "a.parquet", {"path": paths, "label": [0, 1]}))
  assert [example.image for example in every(source)] == [b"a", b"b"]
  assert source.notes[-1].endswith(f"are outside of its folder ({paths[1]!r}).")
  pairs = [{"bytes": None, "path": path} for path in paths]
  source = open_source(write(tmp_path / "b.parquet", {"image": pairs, "label": [0, 1]}))
  assert [example.image for example in every(source)] == [b"a", b"b"]


@pytest.mark.parametrize("pairs", [False, True])
def test_files_that_are_named_by_paths_are_found_in_other_sources(tmp_path, pairs):
  root = tree(tmp_path / "photos", "a/0.png", "a/1.png", "b/2.png", "b/3.png")
  (tmp_path / "link").symlink_to(root)
  paths = ["photos/a/0.png", str(root / "b/2.png"), "link/a/1.png", None, "gone/x.png"]
  if pairs:
    paths = [{"bytes": None, "path": path} for path in paths]
    paths.append({"bytes": b"x", "path": "photos/b/3.png"})
  columns = {"image": paths, "label": [0, 1, 0, 1, 0, 1][: len(paths)]}
  source = open_source(write(tmp_path / "a.parquet", columns, row_group_size=2))
  for other in (open_source(f"folder:{root}"), open_source(f"folder:{tmp_path}/link")):
    assert datasets.shared_images(source, other).images == 3
    assert datasets.shared_images(other, source).images == 3
  assert datasets.shared_images(source, source).images == len(paths)
  first = sources.Selected(source, sources.Listed([1]), "one")
  assert datasets.shared_images(first, open_source(f"folder:{root}")).example == source.name(1)
  assert datasets.shared_images(first, open_source(f"folder:{root}/a", label_key="")) is None


def test_images_are_not_searched_for_paths_if_all_have_bytes(tmp_path, monkeypatch):
  pairs = [{"bytes": image, "path": "0.jpg"} for image in images(4)]
  source = open_source(write(tmp_path / "a.parquet", {"image": pairs, "label": [0, 1, 0, 1]}))
  monkeypatch.setattr(parquet_source._File, "group", None)  # would fail
  assert datasets.shared_images(source, source).images == 4


def test_splits_are_told_by_the_names_of_files(tmp_path):
  for name, first in (("train-0.parquet", 0), ("train-1.parquet", 6), ("test/0.parquet", 12)):
    write(tmp_path / name, {"image": images(6, first), "label": [0, 1] * 3})
  spec = f"parquet:{tmp_path}"
  train, test, half = (open_source(spec, name) for name in ("train", "test", "train[:50%]"))
  assert [example.image for example in every(train)] == images(12)
  assert [example.image for example in every(test)] == images(6, 12)
  assert sorted(map(half.labels, range(6))) == [(0,)] * 3 + [(1,)] * 3
  assert datasets.shared_images(half, train).images == 6
  assert datasets.shared_images(train, test) is None
  for split in ("", "val"):
    with pytest.raises(SourceError, match=f"of these splits: test, train; name one, not '{split}'"):
      open_source(spec, split)


def test_files_without_a_split_are_told(tmp_path):
  write(tmp_path / "train.parquet", {"image": images(2), "label": [0, 1]})
  write(tmp_path / "more.parquet", {"image": images(4), "label": [0, 1] * 2})
  (note,) = open_source(f"parquet:{tmp_path}", "train").notes
  assert note == f"Not used of {str(tmp_path)!r}: 'more.parquet'."


def test_files_are_found_behind_links_and_hidden_ones_are_told(tmp_path):
  write(tmp_path / "elsewhere/0.parquet", {"image": images(2), "label": [0, 1]})
  (tmp_path / "data").mkdir()
  (tmp_path / "data/inner").symlink_to(tmp_path / "elsewhere")
  (tmp_path / "data/._0.parquet").write_bytes(b"of macOS")
  source = open_source(f"parquet:{tmp_path}/data")
  assert [example.image for example in every(source)] == images(2)
  assert source.notes == (f"Left out of '{tmp_path}/data': 1 hidden ('._0.parquet').",)


def write_in_two(folder, columns):
  """Six rows in two files, of four and of two."""
  for file, rows in (("0", slice(0, 4)), ("1", slice(4, 6))):
    part = {name: values[rows] for name, values in columns.items()}
    write(folder / f"{file}.parquet", part, row_group_size=2)


def test_a_column_names_splits(tmp_path):
  splits = ["train", "val", "train", None, "val", "train"]
  columns = {"image": images(6), "label": list("abbcba"), "Split": splits}
  write_in_two(tmp_path, columns)
  spec = f"parquet:{tmp_path}"
  assert sources.named_parts(spec) == {"train": (spec, "train"), "val": (spec, "val")}
  train, val = (open_source(spec, split) for split in ("train", "val"))
  assert [(e.image, *e.labels) for e in every(train)] == [(b"0", 0), (b"2", 1), (b"5", 0)]
  assert [(e.image, *e.labels) for e in every(val)] == [(b"1", 0), (b"4", 0)]
  assert (train.class_names, val.class_names) == (("a", "b"), ("b",))
  assert val.name(1).endswith("1.parquet row 0")
  assert datasets.shared_images(train, val) is None
  assert datasets.shared_images(train, open_source(spec, "train[:70%]")).images == 2
  assert train.notes[-1] == f"1 rows of {str(tmp_path)!r} have no 'Split', and are left out."
  whole = open_source(spec)
  assert len(whole) == 6
  assert whole.notes[-1].endswith("are taken: ['train', 'val'] in the column 'Split'.")
  with pytest.raises(SourceError, match=r"no split 'x': its column 'Split' has \['train', 'val'\]"):
    open_source(spec, "x")


@pytest.mark.parametrize(
  "kind", [pa.string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
)
def test_a_column_of_splits_is_known_by_its_values(tmp_path, kind):
  """Whatever other columns of text there are."""
  splits = ["train", "val", "train", None, "val", "train"]
  facts = pa.array([[("set", "train")]] * 6, pa.map_(pa.string(), pa.string()))
  broken = pa.array([b"\xff"] * 6, pa.binary()).cast(pa.string(), safe=False)
  columns = {"image": images(6), "label": list("abbcba"), "data set": pa.array(splits, kind)}
  columns |= {"facts": facts, "broken": broken}
  write_in_two(tmp_path, columns)
  spec = f"parquet:{tmp_path}"
  assert sources.named_parts(spec) == {"train": (spec, "train"), "val": (spec, "val")}
  train, val = (open_source(spec, split) for split in ("train", "val"))
  assert [e.image for e in every(train)] == [b"0", b"2", b"5"]
  assert [e.image for e in every(val)] == [b"1", b"4"]
  assert train.notes[0].endswith("images are in 'image', labels in 'label', splits in 'data set'.")


@pytest.mark.parametrize("values", [[True, False], ["Training", "PublicTest"]])
def test_a_column_that_may_name_splits_and_is_not_read_is_told(tmp_path, values):
  name = "is_test" if True in values else "usage"
  spec = write(tmp_path / "a.parquet", {"image": images(2), "label": [0, 1], name: values})
  (note,) = open_source(spec).notes
  assert note.endswith(f"are taken: its column {name!r} is not read.")
  assert sources.named_parts(spec) == {}


def test_columns_of_many_texts_are_not_searched_for_splits(tmp_path, monkeypatch):
  texts = [f"train {i}" for i in range(90)]
  columns = {"image": images(90), "label": [0] * 90, "caption": texts}
  spec = write(tmp_path / "a.parquet", columns, row_group_size=30)
  read, groups = parquet_source._File.group, []

  def group(file, number, column):
    groups.append((number, column))
    return read(file, number, column)

  monkeypatch.setattr(parquet_source._File, "group", group)
  assert open_source(spec).notes == ()
  assert groups == [(0, "caption")]


def test_files_of_a_folder_called_train_are_one_split(tmp_path):
  """The way out for files that have several names for a split."""
  columns = {"image": images(2), "label": ["a", "b"]}
  files = "train/jan", "train/train_feb", "test/jan"
  for file in files:
    write(tmp_path / f"{file}.parquet", columns)
  spec = f"parquet:{tmp_path}"
  assert sources.named_parts(spec) == {name: (spec, name) for name in ("test", "train")}
  train = open_source(spec, "train")
  assert [(e.image, *e.labels) for e in every(train)] == [(b"0", 0), (b"1", 1)] * 2
  assert (len(open_source(spec, "test")), train.notes) == (2, ())
  for file in files:
    (tmp_path / f"{file}.parquet").rename(tmp_path / f"{file.replace('/', '_')}.parquet")
  for read in (sources.named_parts, lambda spec: open_source(spec, "train")):
    with pytest.raises(SourceError, match="move their files into a folder called train"):
      read(spec)


def test_names_of_files_tell_splits_before_a_column_does(tmp_path):
  values = {"split": ["a", "b"], "set": ["train", "test"]}
  write(tmp_path / "train.parquet", {"image": images(2), "label": [0, 1], **values})
  assert [*sources.named_parts(f"parquet:{tmp_path}")] == ["train"]
  for note, column in zip(open_source(f"parquet:{tmp_path}").notes, values, strict=True):
    assert note.endswith(f"are taken: its column {column!r} is not read.")


def test_a_row_without_an_image_is_broken_and_an_empty_file_is_told(tmp_path):
  write(tmp_path / "a.parquet", {"image": [None, b"x"], "label": [0, 1]})
  write(tmp_path / "b.parquet", NONE)
  source = open_source(f"parquet:{tmp_path}")
  assert "1 files have no rows" in source.notes[0]
  with pytest.raises(BadImage, match=r"a\.parquet row 0 has no image"):
    source[0]
  assert source[1].image == b"x"


def test_a_file_that_changes_or_goes_ends_the_run(tmp_path):
  spec = write(tmp_path / "a.parquet", {"image": images(2), "label": [0, 1]})
  source = open_source(spec)
  os.utime(tmp_path / "a.parquet", (1, 1))
  with pytest.raises(ChangedError, match=r"a\.parquet\" was changed or removed after it was"):
    source[0]
  (tmp_path / "a.parquet").unlink()
  with pytest.raises(ChangedError, match="was changed or removed"):
    source[0]


def test_few_large_row_groups_are_read_at_once(tmp_path, monkeypatch):
  spec = write(tmp_path / "a.parquet", {"image": images(16), "label": [0] * 16}, row_group_size=1)
  monkeypatch.setattr(parquet_source, "_KEPT", 1)
  source, under_way, most = open_source(spec), [], []
  read = parquet_source._File.group

  def group(*args):
    under_way.append(args)
    most.append(len(under_way))
    time.sleep(0.01)
    under_way.pop()
    return read(*args)

  monkeypatch.setattr(parquet_source._File, "group", group)
  with concurrent.futures.ThreadPoolExecutor(8) as pool:
    read_at_once = list(pool.map(lambda row: source[row].image, range(16)))
  assert (max(most), read_at_once) == (1, images(16))


def test_large_row_groups_are_told(tmp_path, monkeypatch):
  monkeypatch.setattr("vit_jax.extras.sources.parquet._SLOW", 10**5)
  spec = write(tmp_path / "a.parquet", {"image": [b"x" * 10**5, b"y" * 10**5], "label": [0, 1]})
  assert "with up to 0 MB of images" in open_source(spec).notes[0]


NONE = {"image": pa.array([], "binary"), "label": pa.array([], "int64")}


@pytest.mark.parametrize(
  ("columns", "message"),
  [
    ({"a": [1], "label": [0]}, r"columns \['a', 'label'\]; name one by image_key"),
    ({"image": [b"a"], "kind": [0], "of": [7]}, "name one by label_key"),
    ({"image": [[1, 2]], "label": [0]}, "must hold encoded images, paths, or {bytes, path}"),
    ({"image": [b"a"], "label": [0.5]}, "is 'double', but labels are names or whole"),
    ({"image": [b"a", b"b"], "label": [0, None]}, "1 labels .*'label'.* missing.* number 1"),
    (
      {"image": [b"a"] * 3, "label": [["x", "y"], None, []]},
      r"1 labels .*'label'.* missing.* number 1; leave these rows out",
    ),
    ({"image": [b"a", b"b"], "label": [["x", None], []]}, "1 labels .* missing.* number 1"),
    (NONE, "have no rows"),
  ],
)
def test_wrong_files(tmp_path, columns, message):
  with pytest.raises(SourceError, match=message):
    open_source(write(tmp_path / "a.parquet", columns))


@pytest.mark.parametrize("bits", [[0, 1], [True, False], [1.0, 0.0]])
def test_a_column_for_each_class_is_told_to_become_one(tmp_path, bits):
  columns = {"image": images(2), "cat": bits, "dog": bits, "split": ["train", "test"]}
  with pytest.raises(SourceError, match=r"'cat', 'dog'.* \(multi-hot\)\? .*as a list;"):
    open_source(write(tmp_path / "a.parquet", columns))
  columns["dog"] = [2, 1]
  with pytest.raises(SourceError, match=r"; name one by label_key\."):
    open_source(write(tmp_path / "a.parquet", columns))


def test_numbers_that_are_no_class_and_other_types(tmp_path):
  columns, features = {"image": images(3), "label": [0, -1, 1]}, {"label": CLASSES}
  spec = write(tmp_path / "a.parquet", columns, features=features)
  with pytest.raises(SourceError, match=r"1 labels .* 2 classes, such as -1, the first in row 1"):
    open_source(spec)
  write(tmp_path / "b.parquet", {"image": images(1), "label": ["x"]})
  with pytest.raises(SourceError, match=r"b\.parquet\" has other columns than"):
    open_source(f"parquet:{tmp_path}")


def test_files_must_have_the_same_class_names(tmp_path):
  """They are in the metadata alone: label 1 of one file may be a dog, and of another a hen."""
  columns = {"image": images(2), "label": [0, 1]}
  label = lambda *names: {"label": {"names": [*names], "_type": "ClassLabel"}}
  write(tmp_path / "a.parquet", columns, features=label("cat", "dog", "hen"))
  for features, message in (
    (label("cat", "hen"), "1 in the column 'label' is the class 'hen' .*, but the class 'dog'"),
    (label("cat", "dog"), "2 in the column 'label' is no class .*, but the class 'hen'"),
    (None, "0 in the column 'label' is no class .*, but the class 'cat'"),
  ):
    write(tmp_path / "b.parquet", columns, features=features)
    with pytest.raises(SourceError, match=rf"{message} in \".*/a\.parquet\"; write all"):
      open_source(f"parquet:{tmp_path}")
  assert len(open_source(f"parquet:{tmp_path}", label_key="")) == 4
  write(tmp_path / "b.parquet", columns, features=label("cat", "dog", "hen"))
  assert open_source(f"parquet:{tmp_path}").class_names == ("cat", "dog", "hen")


def test_of_several_configurations_one_is_named(tmp_path):
  columns = {"image": images(2), "label": [0, 1]}
  features = {"label": CLASSES}
  write(tmp_path / "cropped/train-0.parquet", columns, features=features)
  write(tmp_path / "full/train-0.parquet", columns)
  advice = r"cropped/train-0\.parquet.* name one folder, such as \".*/cropped\""
  with pytest.raises(SourceError, match=advice):
    open_source(f"parquet:{tmp_path}", "train")
  write(tmp_path / "full/train-0.parquet", {**columns, "box": [0, 1]}, features=features)
  with pytest.raises(SourceError, match=advice):
    open_source(f"parquet:{tmp_path}", "train")
  assert len(open_source(f"parquet:{tmp_path}/cropped", "train")) == 2
  write(tmp_path / "cropped/more/train-1.parquet", columns)
  with pytest.raises(SourceError, match=r"name one folder, such as \".*/cropped/more\""):
    open_source(f"parquet:{tmp_path}/cropped", "train")


def test_a_table_without_the_column_of_splits_is_named(tmp_path):
  columns = {"image": images(2), "label": [0, 1], "split": ["train", "test"]}
  spec = f"parquet:{tmp_path}"
  write(tmp_path / "images.parquet", columns)
  write(tmp_path / "metadata.parquet", {"caption": ["x"]})
  for read in (sources.named_parts, open_source):
    with pytest.raises(SourceError, match=r"metadata\.parquet\" has other columns than .*move it"):
      read(spec)


def test_damaged_and_missing_files(tmp_path):
  spec = write(tmp_path / "a.parquet", {"image": images(3), "label": [0, 1, 1]})
  whole = (tmp_path / "a.parquet").read_bytes()
  for data in (b"", whole[:-9], whole[: len(whole) // 2] + b"PAR1", b"\0" * 99):
    (tmp_path / "a.parquet").write_bytes(data)
    with pytest.raises(SourceError, match=r"a\.parquet\" cannot be read as a Parquet file"):
      open_source(spec)
  for path, message in (("none", "cannot be read"), ("", r"has no \*\.parquet files")):
    (tmp_path / "a.parquet").unlink(missing_ok=True)
    with pytest.raises(SourceError, match=message):
      open_source(f"parquet:{tmp_path}/{path}")


@pytest.mark.parametrize(
  ("images_type", "labels_type"),
  [
    (pa.binary_view(), pa.string_view()),
    (pa.large_binary(), pa.large_string()),
    (pa.dictionary(pa.int32(), pa.binary()), pa.dictionary(pa.int8(), pa.string())),
    (
      pa.struct({"bytes": pa.large_binary(), "path": pa.large_string()}),
      pa.large_list(pa.string()),
    ),
    (pa.binary(), pa.list_view(pa.string())),
    (pa.binary(), pa.list_(pa.string_view())),
  ],
)
def test_every_type_of_bytes_and_texts(tmp_path, images_type, labels_type):
  several = "list" in str(labels_type)
  structs = "struct" in str(images_type)
  pictures = [{"bytes": image, "path": None} for image in images(4)] if structs else images(4)
  names = [["b"], ["a", "b"], [], ["c"]] if several else ["b", "a", "b", "c"]
  columns = {"image": pa.array(pictures, images_type), "label": pa.array(names, labels_type)}
  spec = write(tmp_path / "a.parquet", columns, row_group_size=3)
  source = open_source(spec, "[1:]" if several else "")
  kept = dict(zip(images(4), names, strict=True))
  assert len(source) == (3 if several else 4)
  for example in every(source):
    named = [source.class_names[label] for label in example.labels]
    assert named == (kept[example.image] if several else [kept[example.image]])


@pytest.mark.parametrize("kind", [pa.string_view(), pa.dictionary(pa.int8(), pa.string())])
def test_paths_and_splits_of_every_type_of_texts(tmp_path, kind):
  (tmp_path / "1.jpg").write_bytes(b"a")
  column = lambda *values: pa.array(values, kind)
  columns = {"image": column("1.jpg", "2.jpg"), "label": [1, 2], "split": column("test", "train")}
  (example,) = every(open_source(write(tmp_path / "a.parquet", columns), "test"))
  assert example.image == b"a"


@pytest.mark.parametrize("before", ["", "data:image/jpeg;base64,"])
def test_images_in_base64_are_no_paths(tmp_path, before):
  text = before + base64.b64encode(b"\xff\xd8\xff\xe0" + bytes(400)).decode()
  columns = {"image": [None, text], "label": [1, 2]}
  with pytest.raises(SourceError, match=r"Column 'image' of .* holds images as base64 text"):
    open_source(write(tmp_path / "a.parquet", columns))
  columns = {"image": [{"bytes": text}], "label": [1]}
  with pytest.raises(SourceError, match=r"Column 'image' of .* is 'struct<bytes: string"):
    open_source(write(tmp_path / "a.parquet", columns))
