"""Opening sources by name, the digits, and synthetic images."""

import numpy as np
import pytest

from tests.data.opened import assert_same, every, open_source
from vit_jax.data import sources


def test_a_folder_that_is_there_lacks_its_kind(tmp_path):
  with pytest.raises(sources.SourceError, match=r"it cannot be read either: .* has no folders"):
    open_source(str(tmp_path))
  (tmp_path / "a").mkdir()
  (tmp_path / "a/1.jpg").touch()
  with pytest.raises(sources.SourceError, match=f"data source; did you mean folder:{tmp_path}"):
    open_source(str(tmp_path))


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
