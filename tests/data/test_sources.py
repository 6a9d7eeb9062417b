"""Opening sources by name, the digits, and synthetic images."""

import numpy as np
import pytest
from sklearn import datasets, model_selection

from tests.data.opened import assert_same, every, open_source, tree
from vit_jax import registry
from vit_jax.data import sources
from vit_jax.data.sources import folder
from vit_jax.extras.preparation import splits
from vit_jax.recipes import own_images


@pytest.mark.parametrize(
  ("files", "path", "named"),
  [
    (["a/1.jpg"], "", "folder:"),
    ([".txt"], "", "folder:"),
    (["list.csv", "a/1.jpg"], "list.csv", "csv:"),
    (["LIST.TSV"], "LIST.TSV", "csv:"),
    (["x.parquet"], "x.parquet", "parquet:"),
    (["data/train-0.parquet", "README.md"], "", "parquet:"),
    (["0.tar", "1.tar"], "", "wds:"),
    (["0.tar", "a/1.txt", "sample.jpg", ".a/1.jpg"], "", "wds:"),
    (["._0.tar", ".x.parquet", "a/1.jpg"], "", "folder:"),
    ([], "{0..1}.tar", "wds:"),
    (["dataset_dict.json", "train/state.json"], "", "hf:"),
    (["state.json", "data-0.arrow"], "", "hf:"),
    ([], "nothing", ""),
    (["x.bin"], "x.bin", ""),
  ],
)
def test_a_path_is_recognised_by_what_it_is(tmp_path, files, path, named):
  text = f"{tree(tmp_path, *files)}/{path}"
  assert sources.recognised(text) == named + text
  assert sources.recognised(f"folder:{text}") == f"folder:{text}"
  assert sources.anywhere(text) == (named + text.rstrip("/") if named else text)


@pytest.mark.parametrize(
  ("file", "form"), [("0.tar", "wds:"), ("metadata.parquet", "parquet:"), ("data/0.parquet", "par")]
)
def test_an_archive_beside_folders_of_images_is_refused_with_both_readings(tmp_path, file, form):
  tree(tmp_path, "cat/1.jpg", "dog/inner/1.jpg", file)
  with pytest.raises(sources.SourceError, match=f"name it {form}.* or folder:{tmp_path} to read"):
    sources.meant(str(tmp_path))
  assert sources.meant(f"wds:{tmp_path}") == f"wds:{tmp_path}"


@pytest.mark.parametrize("name", ["digits", "synthetic:3"])
def test_a_path_of_a_user_comes_before_a_source_of_its_name(tmp_path, monkeypatch, name):
  monkeypatch.chdir(tmp_path)
  assert sources.meant(name) == name
  tree(tmp_path, f"{name}/a/1.png")
  assert sources.meant(name) == f"folder:./{name}"
  assert sources.recognised(name) == name  # as settings name it
  assert sources.anywhere("digits") == "digits"


def test_what_was_recognised_is_said(tmp_path):
  (note,) = open_source(str(tree(tmp_path, "a/1.jpg"))).notes
  assert note == f"{str(tmp_path)!r} is read as folder:{tmp_path}."
  assert open_source(f"folder:{tmp_path}").notes == ()


def test_the_parts_that_data_comes_in_are_told(tmp_path):
  tree(tmp_path, "train-0.tar", "train-1.tar", "val.tar", "d/test.parquet")
  (tmp_path / "list.csv").write_text("path,label,split\na.jpg,x,train\nb.jpg,x,test\n")
  (tmp_path / "plain.csv").write_text("a.jpg,x\n")
  for spec, parts in (
    (f"csv:{tmp_path}/list.csv", ["test", "train"]),
    (f"csv:{tmp_path}/plain.csv", []),
    (f"wds:{tmp_path}", ["train", "val"]),
    (f"wds:{tmp_path}/train-{{0,1}}.tar", ["train"]),
    (f"parquet:{tmp_path}", ["test"]),
    (f"{tmp_path}/d/test.parquet", ["test"]),
  ):
    told = sources.named_parts(spec)
    assert told == {part: (sources.recognised(spec), part) for part in parts}


@pytest.mark.parametrize(
  "beside",
  ["", ".test/b/1.png", "unlabeled/b/1.png", "test/1.png", "train/a.csv", "train_logs/b/1.txt"],
)
def test_folders_of_splits_are_told_whatever_lies_beside_them(tmp_path, beside):
  """A folder of scraps, and images that have no classes."""
  tree(tmp_path, "train/a/1.png", "val2017/a/1.png", *filter(None, [beside]))
  told = sources.named_parts(str(tmp_path))
  named = dict(train="train", val="val2017")
  assert told == {part: (f"folder:{tmp_path}/{name}", "") for part, name in named.items()}


@pytest.mark.parametrize(
  ("files", "told"),
  [
    (["train/a/1.png", "train/b/1.png", "Test1/1.png", "val/2.png"], {"train": "train"}),
    (["train/a/1.png"], {"train": "train"}),
    (["test/a/1.png", "train/1.png"], {"test": "test"}),
    (["train/a/1.png", "train_more/1.png", "test/1.png"], {}),
    (["train/a/1.png", "test/1.png", "bus/1.png"], {}),
    (["train/1.png", "test/1.png"], {}),
  ],
)
def test_one_split_may_have_classes_if_all_folders_are_splits(tmp_path, files, told):
  tree(tmp_path, *files)
  expected = {part: (f"folder:{tmp_path}/{name}", "") for part, name in told.items()}
  assert sources.named_parts(str(tmp_path)) == expected


def test_two_folders_for_a_split_are_named_and_one_alone_is_a_class(tmp_path):
  tree(tmp_path, "train2014/a/1.png", "train2017/a/1.png", "test/a/1.png")
  with pytest.raises(sources.SourceError, match=r"several folders for train: train2014, train2017"):
    sources.named_parts(str(tmp_path))
  tree(tmp_path / "one", "train/a/1.png", "train_small/a/1.png", "test/a/1.png")
  assert sources.named_parts(str(tmp_path / "one"))["train"] == (f"folder:{tmp_path}/one/train", "")
  tree(tmp_path / "vehicles", "train/steam/1.png", "bus/1.png")
  assert sources.named_parts(str(tmp_path / "vehicles")) == {}


def test_folders_that_are_no_part_are_told(tmp_path, caplog):
  tree(tmp_path, *(f"{name}/a/1.png" for name in ("train", "train2", "val", "extra", ".git")))
  (tmp_path / "test").mkdir()
  assert [*sources.named_parts(str(tmp_path))] == ["train", "val"]
  (said,) = caplog.messages
  assert said == f"Not used of {str(tmp_path)!r}: 'extra', 'test', 'train2'."
  caplog.clear()
  sources.named_parts(str(tmp_path / "train"))
  assert not caplog.messages


@pytest.mark.parametrize(
  ("values", "told"),
  [
    (["train2017", "Val_Set"], {"train": "train2017", "val": "Val_Set"}),
    (
      ["Train", "train_small", "eval", ""],
      {"train": "Train", "train_small": "train_small", "eval": "eval"},
    ),
    (
      ["train_val", "test-dev", "Test"],
      {"train": "train_val", "test-dev": "test-dev", "test": "Test"},
    ),
    (["train", "test_a", "test_b"], {"train": "train", "test_a": "test_a", "test_b": "test_b"}),
    (["fold1", "Fold2"], {"fold1": "fold1", "fold2": "Fold2"}),
    (["Train", "train", "test"], "for train: Train, train; call one of them alone train,"),
    (["train_a", "train_b"], "for train: train_a, train_b; .* call all of them train"),
    (["A", "a"], "several values for a: A, a; call one of them alone a,"),
  ],
)
def test_values_of_a_column_mean_splits_as_names_of_folders_do(tmp_path, values, told):
  rows = "".join(f"{number}.jpg,x,{value}\n" for number, value in enumerate(values))
  spec = f"csv:{tmp_path}/list.csv"
  (tmp_path / "list.csv").write_text(f"path,label,split\n{rows}")
  if isinstance(told, str):
    with pytest.raises(sources.SourceError, match=told):
      sources.named_parts(spec)
  else:
    assert sources.named_parts(spec) == {word: (spec, value) for word, value in told.items()}


def test_labels_are_opened_for_parts_that_are_cut_by_class():
  cases = {("folder:x", "[90%:]"): "label", ("folder:x", ""): "", ("tfds:x", "train[90%:]"): ""}
  assert {case: sources.label_key_of(*case) for case in cases} == cases


class InOrder(folder.Folder):
  """Cut in the order of the files."""

  form = "in_order:DIR"
  parts_by_class = False


def test_a_source_says_whether_parts_are_cut_by_class(monkeypatch):
  monkeypatch.setitem(registry.SOURCES, "in_order", "tests.data.test_sources:InOrder")
  assert sources.label_key_of("in_order:x", "[90%:]") == ""
  for spec, of_each in (("in_order:x", ""), ("folder:x", own_images.OF_EACH_CLASS)):
    _, _, words = own_images.parts_of(spec, {})
    assert words == f"a random tenth{of_each} is scored, and not trained on"


def test_a_split_is_prepared_under_the_name_in_its_column_too(tmp_path):
  tree(tmp_path, "0.jpg", "1.jpg", "2.jpg")
  rows = "".join(f"{n}.jpg,x,{split}\n" for n, split in enumerate(["train", "test1", "train"]))
  (tmp_path / "list.csv").write_text(f"path,label,split\n{rows}")
  for name in ("test", "test1"):
    split, source = splits.open_split(f"{name}=csv:{tmp_path}/list.csv")
    assert (split, len(source)) == (name, 1)


NO_SOURCE = ("", "tfds", "tfds:", "folder:", "folder", "digits:3", "digits:", "synthetic")
BARE = dict(label_key="")
# The files in a folder {}, the source, its split, its options, and what the message says.
REFUSED = [
  *([[], spec, "", {}, f'"{spec}" does not name a data source'] for spec in NO_SOURCE),
  ([], "fodler:/data", "", {}, '"fodler:/data" does not name a .* first: folder:DIR, .*digits'),
  ([], "{}/b", "", {}, "does not name a data source, and there is no file"),
  ([], "{}", "", {}, "has no folders inside"),
  ([], "folder:{}", "", {}, "has no folders inside"),
  ([], "folder:{}/missing", "", {}, "There is no folder .* for each class"),
  ([], "folder:{}/no", "", BARE, r'^There is no folder ".*/no"; .* holds images\.$'),
  (["text.txt"], "folder:{}", "", BARE, r'^Folder ".*" has no \.jpg.* Left out: 1 with'),
  (["a/1.png"], "folder:{}", "train", {}, "have no split 'train'; set it to"),
  (["a/1.png", "b/1.tar"], "folder:{}", "", {}, r'b" has no \.jpg, .*\.tiff.* are named wds:'),
  (
    [*(f"many/{i}.png" for i in range(20)), "few/0.png"],
    "folder:{}",
    "[:40%]",
    {},
    r'few" has 1 images, and none .* part \[:40%\]',
  ),
  ([], "folder:labels.tsv", "", {}, "A CSV file is named csv:FILE"),
  ([], "folder:/data/x.tar", "", {}, "Tar files of a WebDataset are named wds:PATTERN"),
  ([], "folder:/data/x.tar.gz", "", {}, "Compressed archives are not read"),
  ([], "folder:x.parquet", "", {}, "Parquet files are named parquet:PATH"),
  ([], "digits", "validation", {}, '"train" and "test", not "validation"'),
  ([], "synthetic:7", "train", {}, '"synthetic:CLASSES" has no splits, .* set the split to ""'),
  ([], "synthetic:0", "", {}, "has no number of classes"),
]


@pytest.mark.parametrize(("files", "spec", "split", "options", "message"), REFUSED)
def test_what_there_is_not(tmp_path, files, spec, split, options, message):
  tree(tmp_path, *files)
  with pytest.raises(sources.SourceError, match=message):
    open_source(spec.replace("{}", str(tmp_path)), split, **options)


@pytest.mark.parametrize("prefix", ["", "folder:"])
def test_a_name_like_one_that_is_there(tmp_path, monkeypatch, prefix):
  (tmp_path / "photos").mkdir()
  monkeypatch.chdir(tmp_path)
  names = {"fotos": "photos", "./Photo": "./photos", f"{tmp_path}/photo": "photos"}
  for path, meant in names.items():
    with pytest.raises(sources.SourceError, match=rf"no .*folder.*Did you mean .*{meant}\?$"):
      open_source(f"{prefix}{path}")
  with pytest.raises(sources.SourceError) as error:
    open_source(f"{prefix}elsewhere")
  assert "Did you mean" not in str(error.value)


@pytest.mark.parametrize("part", [0, 1])
def test_digits_are_those_of_scikit_learn_in_its_stratified_split(part):
  digits = datasets.load_digits()
  options = dict(test_size=0.2, random_state=0, stratify=digits.target)
  rows = model_selection.train_test_split(np.arange(1797), **options)[part]
  split = ("train", "test")[part]
  source = open_source("digits", split)
  assert (source.class_names, source.multi_label) == (tuple("0123456789"), False)
  assert source.identity == f"digits {split}"
  names = [
    f"digits {split} example {i} (row {row} of scikit-learn's)" for i, row in enumerate(rows)
  ]
  assert [source.name(i) for i in range(len(source))] == names
  examples = every(source)
  assert [(each.labels, each.name) for each in examples] == [
    ((digits.target[row],), name) for row, name in zip(rows, names, strict=True)
  ]
  images = np.stack([each.image for each in examples])
  assert images.dtype == np.uint8
  np.testing.assert_allclose(images, digits.images[rows] * (255 / 16), atol=0.5)  # of 16 levels


@pytest.mark.parametrize(("spec", "split"), [("digits", "train"), ("synthetic:7", "")])
def test_images_that_a_source_keeps_cannot_be_changed(spec, split):
  with pytest.raises(ValueError, match="read-only"):
    open_source(spec, split)[0].image[:] = 0


def test_synthetic_is_deterministic_and_knows_its_classes():
  source, example = open_source("synthetic:7"), open_source("synthetic:7")[123]
  assert (len(source), len(source.class_names)) == (1_281_167, 7)
  assert source.identity != open_source("synthetic:8").identity
  assert_same(source[123], example)
  assert (source.labels(123), source.name(123)) == (example.labels, example.name)
  assert source[0].image.dtype == np.uint8
  assert source[0].image.shape[2] == 3
  assert {source[index].labels[0] for index in range(500)} == set(range(7))
