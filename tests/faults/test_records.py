"""Damage inside an ArrayRecord file, read through TFDS: as a broken image, and by name."""

import pytest

from tests import programs
from tests.data import tfds_fixture
from vit_jax.storage import metrics_log


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
  """80 training and 20 test examples of two classes; one record of each split is damaged."""
  folder = tmp_path_factory.mktemp("tfds")
  tfds_fixture.write_single_label_tfds(folder, num_examples=100, num_classes=2, seed=0)
  for path in folder.rglob("*.array_record-*"):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
  return folder


def run(data_dir, workdir, *more):
  settings = (
    "data.train.source=tfds:tiny_single_label",
    "data.train.split=train",
    "model.num_classes=2",
    "batch_size=16",
    "duration.steps=10",
    "log_every.steps=5",
    "evaluate_every.steps=5",
    *more,
  )
  command = programs.digits(workdir, *(f"--config.{setting}" for setting in settings))
  return programs.run(command, TFDS_DATA_DIR=str(data_dir))


NO_TEST = "evaluate.test.source="
TEST = ("evaluate.test.source=tfds:tiny_single_label", "evaluate.test.split=test")


def test_in_training_it_is_masked_counted_and_named(data_dir, tmp_path):
  result = run(data_dir, tmp_path, NO_TEST)
  assert result.returncode == 0, result.stderr
  lines = metrics_log.read(tmp_path)
  # 160 images are two epochs of 80, neither of them shortened.
  assert [(line["step"], line["data/epoch"]) for line in lines] == [(5, 1.0), (10, 2.0)]
  assert [line["data/bad_examples"] for line in lines] == [1, 2]
  (name,) = {
    line.split("Left out of training: ")[1].split(": ", 1)[1].split(": ")[0]
    for line in result.stderr.splitlines()
    if "Left out of training" in line
  }
  assert name.startswith("tfds:tiny_single_label/1.0.0 train example ")
  assert "hash mismatch" in result.stderr


def test_above_the_limit_the_run_stops(data_dir, tmp_path):
  result = run(data_dir, tmp_path, NO_TEST, "data.bad_limit=0.0005")
  assert result.returncode == 1
  assert "config.data.bad_limit=0.0005" in programs.message(result)


def test_a_missing_file_stops_the_run_whatever_the_limit(tmp_path):
  tfds_fixture.write_single_label_tfds(tmp_path / "tfds", num_examples=100, num_classes=2, seed=0)
  lost = sorted((tmp_path / "tfds").rglob("*train*array_record-*"))[0]
  lost.unlink()
  result = run(tmp_path / "tfds", tmp_path / "run", NO_TEST, "data.bad_limit=1.0")
  assert result.returncode == 1
  said = programs.message(result)
  assert f'of "{lost}" cannot be read' in said
  assert "the file is missing or damaged: prepare tiny_single_label/1.0.0 again" in said
  assert "Traceback" not in result.stderr


def test_in_evaluation_it_is_an_error_that_names_the_record(data_dir, tmp_path):
  result = run(data_dir, tmp_path, *TEST)
  assert result.returncode == 1
  said = programs.message(result)
  assert "Evaluation set 'test' cannot be scored: tfds:tiny_single_label/1.0.0 test example" in said
  assert "hash mismatch" in said
  assert "Traceback" not in result.stderr
