"""The report of a workdir with damaged files, and of a run whose numbers are not finite."""

import dataclasses
import re

import numpy as np
import pytest

from tests.extras.report import made_run
from tests.extras.report.made_run import step_line
from tests.extras.report.read_page import Page
from vit_jax.config import AUTO
from vit_jax.evaluation import results
from vit_jax.extras.distillation import objective as distillation
from vit_jax.extras.report import report, run, set_section
from vit_jax.storage import workdir


def page(folder):
  return Page(report.html([folder], inside=False))


def assert_scored(found):
  """What could be read is there."""
  assert found.values["Metrics at the end", "test top-1, %"] == [0.75, 100]


def test_damaged_files_are_named_and_left_out(tmp_path):
  folder = made_run.write(tmp_path / "run")
  made_run.write_set(folder)
  with (folder / "metrics.jsonl").open("a") as file:
    file.write('{"step": 101, "loss"\n')
  (folder / "evaluation/1/test/classes.csv").write_text('class\n"a\0')
  (folder / "starts.jsonl").write_bytes(b"\xff[[[\n3\n")
  found = page(folder)
  assert "1 damaged line(s) of metrics.jsonl are left out." in found.text
  assert "evaluation/1/test cannot be read and are left out" in found.text
  assert_scored(found)
  (folder / "config.json").write_text("{")
  (folder / "metrics.jsonl").unlink()
  assert "The settings are left out" in page(folder).text


@pytest.mark.parametrize("number", ["1" + "0" * 30, "-1"])
@pytest.mark.parametrize("table", [results.CLASSES, results.CONFUSION])
def test_a_number_that_no_evaluation_counts_is_damage(tmp_path, table, number):
  folder = made_run.write(tmp_path / "run")
  made_run.write_set(folder)
  path = folder / "evaluation/1/test" / table
  path.write_text(re.sub(r",\d+", f",{number}", path.read_text(), count=1))
  assert "is no number of images." in page(folder).text


def test_values_that_are_not_finite(tmp_path):
  lines = [step_line(1), step_line(2, loss="nan", images_per_second="inf"), step_line(3)]
  found = page(made_run.write(tmp_path / "run", lines=lines))
  assert found.values["Metrics at the end", "training loss"] == [2 / 3, 3]


@pytest.mark.parametrize(
  ("changes", "said"),
  [
    (dict(name="no-model", depth=AUTO), "is no model"),
    (dict(name="ViT-B/7", patch=7), "cannot be cut into patches"),
  ],
)
def test_settings_of_no_model_are_left_out(tmp_path, changes, said):
  settings = made_run.replaced(model=dataclasses.replace(made_run.CONFIG.model, **changes))
  found = page(made_run.write(tmp_path / "run", settings=settings))
  assert "The settings are left out" in found.text
  assert said in found.text
  assert_scored(found)


def test_a_model_without_a_name_is_told_by_its_shape(tmp_path):
  settings = made_run.replaced(model=dataclasses.replace(made_run.CONFIG.model, name="no-model"))
  found = page(made_run.write(tmp_path / "run", settings=settings))
  assert "no-model patch=4 depth=1 width=16" in found.text


@pytest.mark.parametrize("start", [made_run.START, None])
def test_a_teacher_that_is_gone_leaves_the_settings(tmp_path, start):
  """What a training costs is unknown then, and the multiply-adds of an image are the model's."""
  teaching = distillation.Settings(teacher=str(tmp_path / "gone.npz"))
  folder = made_run.write(
    tmp_path / "run", settings=made_run.replaced(objective=teaching), start=start
  )
  found = page(folder)
  assert "The settings are left out" not in found.text
  labels = page(made_run.write(tmp_path / "labels"))
  macs = ("The run", "GMACs of an image")
  assert found.values[macs] == labels.values[macs]
  assert "FLOPs in all steps" not in found.text
  assert_scored(found)


def test_starts_that_cannot_be_read_are_left_out(tmp_path, monkeypatch):
  """As in the workdir of another user."""
  folder = made_run.write(tmp_path / "run")
  # Reads a folder, which is an OSError.
  monkeypatch.setattr(workdir, "read_starts", lambda _: tmp_path.read_bytes())
  found = page(folder)
  assert "starts.jsonl cannot be read: " in found.text
  assert "main.py" not in found.text
  assert_scored(found)


def test_probabilities_that_are_not_finite(tmp_path):
  """The predictions of a run that diverged have a probability of NaN."""
  folder = made_run.write(tmp_path / "run")
  labels, _, probabilities = made_run.write_set(folder)
  path = folder / "evaluation/1/test/predictions.csv"
  rows = path.read_text().splitlines()
  bad = [f"{row.rpartition(',')[0]},nan" for row in rows[1:11]]
  path.write_text("\n".join([rows[0], *bad, *rows[11:]]) + "\n")
  (scored,) = run.read_all([folder])[0].sets
  _, _, images = set_section.bins(scored)
  assert images.sum() == len(labels) - 10
  count, _ = np.histogram(probabilities[10:], np.arange(16) / 15)
  assert images.tolist() == [n for n in count if n]
  path.write_text("\n".join([rows[0], *bad]) + "\n")
  assert "Calibration" not in {title for _, title in page(folder).headings}


def test_one_image_and_one_class(tmp_path):
  folder = made_run.write(tmp_path / "run")
  made_run.write_set(folder, names=("cat",), count=1)
  found = page(folder)
  assert "evaluation/1. on 1 image" in found.text
  assert found.values["Accuracy of 1 class, the lowest first", "cat"] == [1, 1]
