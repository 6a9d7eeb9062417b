"""Class names and kinds of labels that a dataset for TFDS cannot hold are refused at once."""

import os

import pytest

from tests.data.made_sets import folder, made, opened, write_images
from vit_jax.data.sources import SourceError
from vit_jax.data.sources.csv_file import Csv

pytestmark = pytest.mark.usefixtures("small_files")

NOT_UTF8 = os.fsdecode(b"caf\xe9")
WRONG = {
  " ": "it is empty",
  "\u2003": "it is empty",
  "cat ": "it begins or ends with white space",
  "\tcat": "it begins or ends with white space",
  "cat\u2028": "it begins or ends with white space",
  "wild\ncat": "it has a line break",
  "wild\rcat": "it has a line break",
  NOT_UTF8: "it is not valid UTF-8",
}


def table(tmp_path, labels):
  """A table of one image for each label."""
  write_images(tmp_path / "in", {"x": len(labels)})
  lines = [f'in/x/{i:03}.jpg,"{label}"\n' for i, label in enumerate(labels)]
  path = tmp_path / "list.csv"
  path.write_bytes(os.fsencode("".join(lines)))
  return Csv(str(path))


@pytest.mark.parametrize("name", WRONG)
def test_class_names_that_would_be_read_back_otherwise(tmp_path, name):
  (tmp_path / "folders").mkdir()
  write_images(tmp_path / "folders", {name: 1, "cat": 1, "dog": 1})
  for source in (folder(tmp_path / "folders"), table(tmp_path, [name, "cat", "dog"])):
    with pytest.raises(SourceError) as raised:
      made(tmp_path, {"val": table(tmp_path, ["cat"]), "train": source})
    message = f'Split "train" has a class {name!r}, which a dataset cannot hold: {WRONG[name]}; re'
    assert message in str(raised.value)
  assert not (tmp_path / "tfds").exists()


def test_odd_class_names_are_read_back_as_they_were(tmp_path):
  names = ["#", "a  b", "cat", "wasp, small", "Ärger", "日 本"]
  made(tmp_path, {"train": table(tmp_path, names)})
  found = opened("train")
  assert found.class_names == tuple(sorted(names))
  assert {found.labels(i) for i in range(6)} == {(i,) for i in range(6)}


def test_two_classes_of_one_name(tmp_path):
  source = table(tmp_path, ["cat", "dog"])
  source.class_names = ("cat", "cat")
  with pytest.raises(SourceError, match=r"'cat', .* cannot hold: another class has this name"):
    made(tmp_path, {"train": source})


@pytest.mark.parametrize("multi_label_first", [False, True])
def test_splits_with_different_kinds_of_labels(tmp_path, multi_label_first):
  one, several = (table(tmp_path, ["cat", "dog"]) for _ in range(2))
  several.multi_label = True
  splits = [("one", one), ("several", several)]
  with pytest.raises(SourceError) as raised:
    made(tmp_path, dict(reversed(splits) if multi_label_first else splits))
  assert str(raised.value) == (
    'Images of split "several" have any number of labels, and those of split "one" exactly one;'
    " prepare them as two datasets."
  )
  assert not (tmp_path / "tfds").exists()
