"""Splits in the names of files: which files belong together, and which are in no split."""

import pytest

from vit_jax.data.sources import SourceError
from vit_jax.extras.sources import splits


@pytest.mark.parametrize(
  ("names", "told"),
  [
    (["train-0.tar", "train-1.tar", "val-0.tar"], {"train": [0, 1], "val": [2]}),
    (["train/0.tar", "train/1.tar", "Val/0.tar"], {"train": [0, 1], "val": [2]}),
    (["0_train.tar", "1_train.tar", "test.tar"], {"train": [0, 1], "test": [2]}),
    (["a-train-000.tar", "a-train-001.tar", "a-val-0.tar"], {"train": [0, 1], "val": [2]}),
    (["train2014-0", "train2017-0", "val2017-0"], {"train": [0, 1], "val": [2]}),
    (["trainset_0", "trainset_1", "testset_0"], {"train": [0, 1], "test": [2]}),
    (["train-0", "train_extra-0", "val-0"], {"train": [0], "train_extra": [1], "val": [2]}),
    (
      ["train-0", "test_seen-0", "test-unseen-0"],
      {"train": [0], "test_seen": [1], "test_unseen": [2]},
    ),
    (["train/a/0", "train/valid_images/0", "test/valid_images/0"], {"train": [0, 1], "test": [2]}),
    (["train/valid/0", "test/valid/0"], {"train": [0], "test": [1]}),
    (["train_test_split/train-0", "train_test_split/test-0"], {"train": [0], "test": [1]}),
    (["train.tar", "more.tar"], {"train": [0]}),
    (["0.tar", "1.tar"], {}),
  ],
)
def test_files_of_a_split_are_those_of_one_name(names, told):
  assert splits.parts_of("d", names) == {word: ("d", word) for word in told}
  for word, rows in told.items():
    assert splits.of_split("d", names, word)[0] == [names[row] for row in rows]


def test_the_names_of_hugging_face_end_with_sums():
  names = [
    "data/train-00000-of-00002-0a1b2c3d4e5f6a7b.parquet",
    "data/train-00001-of-00002-fbc0d1e2f3a4b5c6.parquet",
    "data/validation-00000-of-00001-ffeeddccbbaa9988.parquet",
  ]
  assert [*splits.parts_of("d", names)] == ["train", "validation"]
  assert splits.of_split("d", names, "train") == (names[:2], [])


@pytest.mark.parametrize(
  "counts",
  [
    "0123456789abcdef",
    ["aa", "ab", "ac"],
    ["000", "099", "abc", "fed"],
    ["00-of-02-deadbeef", "01-of-02-0a1b2c3d"],
  ],
)
def test_files_may_be_counted_by_letters(counts):
  names = [f"{split}_{count}.tar" for split in ("test", "train") for count in counts]
  assert [*splits.parts_of("d", names)] == ["test", "train"]
  assert splits.of_split("d", names, "train") == (names[len(counts) :], [])


def test_files_of_several_names_for_a_split_are_not_united():
  """Months, two of which are hexadecimal numbers."""
  months = ["jan", "feb", "dec"]
  names = [f"{split}_{month}-0" for split in ("train", "test") for month in months]
  together = "or, to read several together, move their files into a folder called"
  said = "for train: train_dec, train_feb, train_jan; call one of them alone train, which is then"
  with pytest.raises(SourceError, match=f"'d' has files with several names {said}.*{together} tra"):
    splits.parts_of("d", names)
  for split in ("train", "test"):
    said = f"split '{split}': {split}_dec, {split}_feb, {split}_jan; name one of them, {together}"
    with pytest.raises(SourceError, match=f"several names for the {said} {split}"):
      splits.of_split("d", names, split)
    assert splits.of_split("d", names, f"{split}_feb")[0] == [f"{split}_feb-0"]
  moved = [f"{name.partition('_')[0]}/{name}" for name in names]
  assert [*splits.parts_of("d", moved)] == ["test", "train"]
  assert splits.of_split("d", moved, "train") == (moved[:3], [])


def test_any_word_of_a_name_may_choose_files():
  assert splits.of_split("d", ["train2014-0", "train2017-0"], "train2017")[0] == ["train2017-0"]
  assert splits.of_split("d", ["fold1.tar", "fold2.tar"], "fold1") == (["fold1.tar"], [])
  names = ["train_a-0", "train_b-0"]
  assert splits.of_split("d", names, "")[0] == names
  assert splits.of_split("d", names, "train_b") == (names[1:], ["Not used of 'd': 'train_a-0'."])


def test_files_that_are_not_used_are_told():
  names = ["train.tar", "train_extra.tar", "more.tar", "val.tar"]
  assert splits.of_split("d", names, "train")[1] == [
    "Not used of 'd': 'train_extra.tar', 'more.tar'."
  ]
  assert splits.of_split("d", names, "val")[1] == ["Not used of 'd': 'more.tar'."]
  assert splits.of_split("d", names, "train_extra")[1] == [
    "Not used of 'd': 'train.tar', 'more.tar'."
  ]


def test_rows_of_splits_that_are_not_used_are_told():
  values = ["train", "train_extra", "holdout", None, "val"]
  notes = []
  assert splits.rows_of_split("d", "set", values, "train", notes).tolist() == [0]
  assert notes == [
    "1 rows of 'd' have no 'set', and are left out.",
    "Not used of 'd': the rows with 'holdout', 'train_extra' in the column 'set'.",
  ]
  notes = []
  splits.rows_of_split("d", "fold", ["1", "2"], "1", notes)
  assert notes == []


@pytest.mark.parametrize(
  ("values", "found"),
  [(("test", "train"), "set"), (("train",), ""), (("test", "val"), ""), (("cat", "train"), "")],
)
def test_a_column_of_splits_has_words_for_training_and_for_more_and_no_others(values, found):
  assert splits.column_of("list.csv", {"set": values, "label": ()}) == found
