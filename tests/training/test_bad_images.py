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


def test_a_few_are_masked_named_and_counted_over_starts_until_they_are_too_many(folder, tmp_path):
  """Epochs stay whole, also with other batch sizes: each has the four broken images once."""
  run = tmp_path / "run"

  def go_on(batch_size, steps, limit=0.1):
    settings = f"batch_size={batch_size}", f"duration.steps={steps}", f"data.bad_limit={limit}"
    return programs.run(command(folder, run, *[f"--config.{setting}" for setting in settings]))

  for epochs, (batch_size, steps) in enumerate([(16, 5), (20, 9)], 1):
    result = go_on(batch_size, steps)
    assert result.returncode == 0, result.stderr
    for name in ("bee/0.png", "bee/1.png", "cat/0.png", "cat/1.png"):
      assert name in result.stderr
    *_, last = metrics_log.read_lines(run)
    assert (last["step"], last["data/images"]) == (steps, 80 * epochs)
    assert (last["data/epoch"], last["data/bad_examples"]) == (epochs, 4 * epochs)
  result = go_on(10, 40, limit=0.0195)  # of 1,000 images, which are the least that count
  message = programs.message(result)
  seen, step = re.search(r"20 of (\d+) training images up to step (\d+)", message).groups()
  assert (result.returncode, int(seen)) == (1, 160 + (int(step) - 9) * 10)
  assert "config.data.bad_limit=0.0195" in message
  assert "Traceback" not in result.stderr


@pytest.mark.parametrize("harm", ["broken", "unreadable"])
def test_an_evaluation_names_the_file_and_does_not_cost_the_run(folder, tmp_path, harm):
  if harm == "unreadable":
    os.truncate(folder / "bee/0.png", 2**40)
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
  said = re.findall("^Step (\\d+): .*'test' .*bee/0.png.*The run goes on.$", result.stdout, re.M)
  assert said == ["5", "10"]
  assert re.search("^Warning: .*; config.data.allow_overlap=True allows it.$", result.stderr, re.M)
  assert re.search("^Warning: Broken image, .*bee/0.png", result.stderr, re.M)
  assert checkpoint.available(tmp_path / "run") == [5, 10]
  unscored = [line for line in metrics_log.read_lines(tmp_path / "run") if "loss" not in line]
  assert unscored == [{"step": step, "test/unscored": 1} for step in (5, 10)]
  again = programs.run([*words, "--mode=evaluate"])
  assert again.returncode == 1
  assert "'test' cannot be scored" in programs.message(again)
  assert "bee/0.png" in again.stderr
  assert "Traceback" not in result.stderr + again.stderr
