"""Broken files in a user's folder: masked and named in training, an error in evaluation."""

import os
import re

import cv2
import numpy as np
import pytest

from tests import programs
from vit_jax.storage import checkpoint, metrics_log


@pytest.fixture
def folder(tmp_path):
  """Two classes of 40 PNGs each; four of the 80 are broken."""
  rng = np.random.default_rng(0)
  for name in ("bee", "cat"):
    (tmp_path / "images" / name).mkdir(parents=True)
    for i in range(40):
      image = rng.integers(0, 256, (20, 24, 3), np.uint8)
      assert cv2.imwrite(str(tmp_path / "images" / name / f"{i}.png"), image)
  for i in range(2):
    for name in ("bee", "cat"):
      path = tmp_path / "images" / name / f"{i}.png"
      path.write_bytes(path.read_bytes()[:100])
  return tmp_path / "images"


def command(folder, workdir, *more):
  settings = (
    f"data.train.source=folder:{folder}",
    "data.train.split=",
    "model.num_classes=2",
    "evaluate.test.source=",
    "batch_size=16",
    "duration.steps=10",
    "log_every.steps=5",
  )
  overrides = [f"--config.{setting}" for setting in settings]
  return programs.digits(workdir, *overrides, *more)


def test_a_few_are_masked_counted_and_named(folder, tmp_path):
  run = tmp_path / "run"
  result = programs.run(command(folder, run, "--config.data.bad_limit=0.1"))
  assert result.returncode == 0, result.stderr
  lines = metrics_log.read_lines(run)
  assert [line["step"] for line in lines] == [5, 10]  # no line for an evaluation that is not there
  last = lines[-1]
  assert last["data/bad_examples"] == 8  # 160 images are two epochs of 80, four of them broken
  for name in ("bee/0.png", "bee/1.png", "cat/0.png", "cat/1.png"):
    assert result.stderr.count(f"{name}") >= 2


def test_images_are_counted_over_starts_with_other_batch_sizes(folder, tmp_path):
  """Epochs stay whole: each has every image once, so the four broken ones too."""
  run = tmp_path / "run"

  def go_on(batch_size, steps, limit=0.1):
    settings = f"batch_size={batch_size}", f"duration.steps={steps}", f"data.bad_limit={limit}"
    return programs.run(command(folder, run, *[f"--config.{setting}" for setting in settings]))

  for epochs, (batch_size, steps) in enumerate([(16, 5), (20, 9)], 1):
    result = go_on(batch_size, steps)
    assert result.returncode == 0, result.stderr
    *_, last = metrics_log.read_lines(run)
    assert (last["step"], last["data/images"]) == (steps, 80 * epochs)
    assert (last["data/epoch"], last["data/bad_examples"]) == (epochs, 4 * epochs)
  result = go_on(10, 40, limit=0.0195)  # of 1,000 images, which are the least that count
  seen, step = re.search(r"20 of (\d+) training images up to step (\d+)", result.stderr).groups()
  assert (result.returncode, int(seen)) == (1, 160 + (int(step) - 9) * 10)


def test_above_the_limit_the_run_stops(folder, tmp_path):
  result = programs.run(command(folder, tmp_path / "run", "--config.data.bad_limit=0.001"))
  assert result.returncode == 1
  message = programs.message(result)
  assert "training images up to step" in message
  assert "config.data.bad_limit=0.001" in message
  assert "Traceback" not in result.stderr


def no_image(path):
  os.truncate(path, 2**40)


@pytest.mark.parametrize("harm", [lambda path: None, no_image], ids=["broken", "unreadable"])
def test_an_evaluation_names_the_file_and_does_not_cost_the_run(folder, tmp_path, harm):
  for path in folder.glob("*/[01].png"):
    harm(path)
  words = command(
    folder,
    tmp_path / "run",
    "--config.data.bad_limit=0.1",
    f"--config.evaluate.test.source=folder:{folder}",
    "--config.evaluate.test.split=",
    "--config.data.allow_overlap=True",  # one folder will do here
    "--config.evaluate_every.steps=5",
  )
  result = programs.run(words)
  assert result.returncode == 0, result.stderr
  said = re.findall("^Step .*bee/0.png.*The run goes on.$", result.stdout, re.M)
  assert [re.match(r"Step (\d+): Evaluation set 'test' ", line)[1] for line in said] == ["5", "10"]
  assert "could not be scored 2 time(s), last after step 10." in result.stdout
  assert checkpoint.available(tmp_path / "run") == [5, 10]
  unscored = [line for line in metrics_log.read_lines(tmp_path / "run") if "loss" not in line]
  assert unscored == [{"step": step, "test/unscored": 1} for step in (5, 10)]
  again = programs.run([*words, "--mode=evaluate"])
  assert again.returncode == 1
  assert "'test' cannot be scored" in programs.message(again)
  assert "bee/0.png" in again.stderr
  assert "Traceback" not in result.stderr + again.stderr
