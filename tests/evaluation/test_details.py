"""Tables of predictions, classes and confusions against counts made by hand."""

import csv

import numpy as np

from vit_jax.evaluation import results

NAMES = ["plain", 'with, comma and "quotes"', "two\nlines", "none of it"]
LABELS = np.array([0, 0, 1, 2, 2, 2], np.int32)
PREDICTIONS = np.array([0, 1, 1, 2, 0, 2], np.int32)


def written(tmp_path, names=NAMES):
  known = results.Details(
    names, LABELS, PREDICTIONS, np.linspace(0.5, 1, 6), lambda row: f"a, b\n{row}.jpg"
  )
  results.write_predictions(tmp_path / "set", known)


def read(path):
  with path.open(newline="") as file:
    return list(csv.reader(file))


def test_tables(tmp_path):
  written(tmp_path)
  expected = np.zeros((4, 4), int)
  for label, prediction in zip(LABELS, PREDICTIONS, strict=True):
    expected[label, prediction] += 1
  names, matrix = results.read_confusion(tmp_path / "set")
  assert names == NAMES
  np.testing.assert_array_equal(matrix, expected)

  header, *rows = read(tmp_path / "set/confusion.csv")
  assert header == ["label / prediction", *NAMES]
  assert [row[0] for row in rows] == NAMES
  np.testing.assert_array_equal(np.array([row[1:] for row in rows], int), expected)

  header, *rows = read(tmp_path / "set/classes.csv")
  shared = ["class", "images", "right", "accuracy"]
  assert header == [*shared, "predicted", "precision", "recall", "f1"]
  assert rows == [
    [NAMES[0], "2", "1", "0.500000", "2", "0.500000", "0.500000", "0.500000"],
    [NAMES[1], "1", "1", "1.000000", "2", "0.500000", "1.000000", "0.666667"],
    [NAMES[2], "3", "2", "0.666667", "2", "1.000000", "0.666667", "0.800000"],
    [NAMES[3], "0", "0", "", "0", "", "", ""],
  ]

  header, *rows = read(tmp_path / "set/predictions.csv")
  assert header == ["name", "label", "prediction", "probability"]
  assert rows[1] == ["a, b\n1.jpg", NAMES[0], NAMES[1], "0.6"]
  assert len(rows) == 6


def test_probabilities_can_be_read_back_exactly(tmp_path):
  """So that the order of confident mistakes is the same for whoever reads the file."""
  probabilities = [np.float32(1)]
  while len(probabilities) < 6:
    probabilities.append(np.nextafter(probabilities[-1], np.float32(0)))
  known = results.Details(NAMES, LABELS, PREDICTIONS, np.array(probabilities), lambda row: f"{row}")
  results.write_predictions(tmp_path / "set", known)
  _, *rows = read(tmp_path / "set/predictions.csv")
  assert [np.float32(row[3]) for row in rows] == probabilities


def test_names_that_are_no_text_and_very_many_classes(tmp_path):
  many = [f"\udcff{i}" for i in range(2001)]
  written(tmp_path, many)
  assert not (tmp_path / "set/confusion.csv").exists()
  assert read(tmp_path / "set/classes.csv")[1][0] == "\\udcff0"
  assert len(read(tmp_path / "set/classes.csv")) == 2002


def test_classes_of_one_name_are_told_apart():
  names = ("crane", "dog", "crane")
  assert results.distinct(names) == ("crane (class 0)", "dog", "crane (class 2)")
