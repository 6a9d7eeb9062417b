"""Broken files in a user's folder: masked and named in training, an error in evaluation."""

import os
import re

import cv2
import numpy as np
import pytest

from tests import programs
from tests.seams import program
from vit_jax.storage import checkpoint, metrics_log
from vit_jax.training import start
from vit_jax.training.callbacks import TrainingError
from vit_jax.training.steps import ImageCount


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


class TakesAway(program.StopAfter):
  """Renames a folder after some steps, as if its disk were no longer mounted."""

  def __init__(self, steps, folder):
    super().__init__()
    self._last, self._folder = steps, folder

  def agreed(self):
    stopping = super().agreed()
    if self.done == self._last:
      self._folder.rename(self._folder.with_name("away"))
    return stopping


@pytest.mark.usefixtures("one_device")
def test_a_lost_disk_ends_a_long_run_before_its_empty_batches_are_saved(tmp_path, monkeypatch):
  """However many images it has seen. The two that were broken all the time do not end it."""
  monkeypatch.setattr(start, "taken", lambda meta, step: ImageCount(step, 10**7))
  photos, run = tmp_path / "photos", tmp_path / "run"
  rng = np.random.default_rng(0)
  for name in ("bee", "cat"):
    (photos / name).mkdir(parents=True)
    for i in range(40):  # JPEG, as decoded small PNGs are kept in memory
      image = rng.integers(0, 256, (20, 24, 3), np.uint8)
      assert cv2.imwrite(str(photos / name / f"{i}.jpg"), image)
  for name in ("bee/0.jpg", "cat/3.jpg"):
    (photos / name).write_bytes(b"")
  words = (
    f"--config.data.train.source=folder:{photos}",
    "--config.data.train.split=",
    "--config.model.num_classes=2",
    "--config.evaluate.test.source=",
    "--config.batch_size=8",
    "--config.checkpoint.every.steps=1",
    "--config.duration.steps=90",
    "--config.data.bad_limit=0.03",
  )
  assert not program.run(run, *words, stop=program.StopAfter(2))
  with pytest.raises(TrainingError, match="is their disk mounted") as caught:
    program.run(run, *words, stop=TakesAway(20, photos))
  broken, taken, step = map(
    int, re.search(r"(\d+) of the last (\d+) .* step (\d+)", str(caught.value)).groups()
  )
  assert (taken, 20 < step < 90, broken > taken / 2) == (32, True, True)
  assert checkpoint.available(run)[-1] == step - 1
  *_, last = metrics_log.read_lines(run)
  assert last["data/bad_examples"] <= 0.03 * 10**7
