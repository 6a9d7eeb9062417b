"""Opening sources by name, the digits, and synthetic images."""

import numpy as np
import pytest

from tests.data.opened import assert_same, every, open_source
from vit_jax.data import sources


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
    ([], "{0..1}.tar", "wds:"),
    (["dataset_dict.json", "train/state.json"], "", "hf:"),
    (["state.json", "data-0.arrow"], "", "hf:"),
    ([], "nothing", ""),
    (["x.bin"], "x.bin", ""),
  ],
)
def test_a_path_is_recognised_by_what_it_is(tmp_path, files, path, named):
  for name in files:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
  text = f"{tmp_path}/{path}"
  assert sources.recognised(text) == named + text
  assert sources.recognised(f"folder:{text}") == f"folder:{text}"
  assert sources.anywhere(text) == (named + text.rstrip("/") if named else text)


def test_what_was_recognised_is_said(tmp_path):
  with pytest.raises(sources.SourceError, match="has no folders inside"):
    open_source(str(tmp_path))
  (tmp_path / "a").mkdir()
  (tmp_path / "a/1.jpg").touch()
  (note,) = open_source(str(tmp_path)).notes
  assert note == f"{str(tmp_path)!r} is read as folder:{tmp_path}."
  assert open_source(f"folder:{tmp_path}").notes == ()
  with pytest.raises(
    sources.SourceError, match="does not name a data source, and there is no file"
  ):
    open_source(f"{tmp_path}/b")


def test_the_parts_that_data_comes_in_are_told(tmp_path):
  (tmp_path / "list.csv").write_text("path,label,split\na.jpg,x,train\nb.jpg,x,test\n")
  (tmp_path / "plain.csv").write_text("a.jpg,x\n")
  for name in ("train-0.tar", "train-1.tar", "val.tar", "d/test.parquet"):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
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
  ("spec", "split", "message"),
  [
    ("fodler:/data", "", '"fodler:/data" does not name a .* nearest first: folder:DIR, .*digits'),
    *(
      (spec, "", f'"{spec}" does not name a data source')
      for spec in ("", "tfds", "tfds:", "folder:", "folder", "digits:3", "digits:", "synthetic")
    ),
    ("folder:labels.tsv", "", "A CSV file is named csv:FILE"),
    ("folder:/data/x.tar", "", "Tar files of a WebDataset are named wds:PATTERN"),
    ("folder:/data/x.tar.gz", "", "Compressed archives are not read"),
    ("folder:x.parquet", "", "Parquet files are named parquet:PATH"),
    ("digits", "validation", '"train" and "test", not "validation"'),
    ("synthetic:7", "train", '"synthetic:CLASSES" has no splits, .* set the split to ""'),
    ("synthetic:0", "", "has no number of classes"),
  ],
)
def test_what_there_is_not(spec, split, message):
  with pytest.raises(sources.SourceError, match=message):
    open_source(spec, split)


@pytest.mark.parametrize("prefix", ["", "folder:"])
def test_a_name_like_one_that_is_there(tmp_path, monkeypatch, prefix):
  (tmp_path / "photos").mkdir()
  monkeypatch.chdir(tmp_path)
  for path, meant in (
    ("fotos", "photos"),
    ("./Photo", "./photos"),
    (f"{tmp_path}/photo", "photos"),
  ):
    with pytest.raises(sources.SourceError, match=rf"no .*folder.*Did you mean .*{meant}\?$"):
      open_source(f"{prefix}{path}")
  with pytest.raises(sources.SourceError) as error:
    open_source(f"{prefix}elsewhere")
  assert "Did you mean" not in str(error.value)


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


# --- synthetic ---


def test_synthetic_is_deterministic_and_knows_its_classes():
  source = open_source("synthetic:7")
  assert len(source) == 1_281_167
  assert len(source.class_names) == 7
  assert_same(source[123], open_source("synthetic:7")[123])
  assert source[0].image.dtype == np.uint8
  assert source[0].image.shape[2] == 3
  assert {source[index].labels[0] for index in range(500)} == set(range(7))
