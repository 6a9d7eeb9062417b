"""The runs of the study of masked patch prediction, and its report."""

import dataclasses
import json

import numpy as np
import pytest

from vit_jax import recipes
from vit_jax.experiments import masked_report, masked_study
from vit_jax.experiments.masked_study import FAST, Arm, Size
from vit_jax.experiments.runs import Run
from vit_jax.training import checks


def resolved(run):
  config = recipes.resolve(run.recipe, run.overrides)
  checks.check(config)
  return config


@pytest.mark.parametrize("start", masked_study.STARTS)
def test_arms_differ_in_their_start_and_length_alone(tmp_path, start):
  size = Size()
  config = resolved(masked_study.labelled(tmp_path, Arm(1000, start), 1e-3, 1, size, score=True))
  plain = resolved(masked_study.labelled(tmp_path, Arm(1000, "scratch"), 1e-3, 1, size, score=True))
  own = dict(init_from=config.init_from, new_head=config.new_head)
  length = {"duration", "evaluate_every", "schedule", "checkpoint"}
  same = {field.name for field in dataclasses.fields(config)} - own.keys() - length
  assert all(getattr(config, name) == getattr(plain, name) for name in same)
  steps = size.labels[1000] + (size.pretraining if start == "longer" else 0)
  assert config.duration.steps == config.evaluate_every.steps == steps
  before = masked_study.pretraining(tmp_path, "mean_color", 0.5, 1, size)
  assert config.init_from == (str(before.folder) if start == "masked" else "")


def test_test_images_are_scored_only_with_the_chosen_rate(tmp_path):
  score = resolved(masked_study.labelled(tmp_path, Arm(100), 1e-3, 0, FAST, score=True))
  choose = resolved(masked_study.labelled(tmp_path, Arm(100), 1e-3, 0, FAST, score=False))
  assert score.data.evaluate["test"].split == "test"
  assert choose.data.evaluate["test"].split == "train[90%:]"
  assert score.data.train == choose.data.train
  assert (score.data.train.split, score.data.train.subset) == ("train[:90%]", 100)


def test_pretraining_differs_in_target_and_rate_alone(tmp_path):
  base = resolved(masked_study.pretraining(tmp_path, "mean_color", 0.5, 0, Size()))
  other = resolved(masked_study.pretraining(tmp_path, "pixels", 0.15, 0, Size()))
  assert dataclasses.replace(other, masked=base.masked) == base
  assert base.data.train.split == "train"


def test_runs_with_other_settings_have_other_folders(tmp_path, monkeypatch):
  """A trial with a few steps in the same folder was taken for the run itself."""
  first = masked_study.pretraining(tmp_path, "mean_color", 0.5, 0, Size())
  assert first.folder == masked_study.pretraining(tmp_path, "mean_color", 0.5, 0, Size()).folder
  tuned = lambda size: masked_study.labelled(tmp_path, Arm(100), 1e-3, 0, size, score=True).folder
  assert first.folder != masked_study.pretraining(tmp_path, "mean_color", 0.5, 0, FAST).folder
  assert tuned(Size()) != tuned(FAST)
  longer = tuned(dataclasses.replace(Size(), pretraining=2001))
  assert tuned(Size()) != longer  # it starts from other weights
  monkeypatch.setitem(masked_study.MODEL, "model.width", 128)
  assert first.folder != masked_study.pretraining(tmp_path, "mean_color", 0.5, 0, Size()).folder


def test_cells_are_the_starts_and_the_targets_with_the_rates():
  found = masked_study.cells(Size())
  assert len(found) == len(set(found)) == 3 * 3 + 6 - 1
  assert len({cell.name() for cell in found}) == len(found)


def test_the_best_rate_is_chosen_and_scored_with_every_seed(tmp_path, monkeypatch):
  """Accuracies are made up: the middle rate is best on the images that choose."""
  executed = []
  monkeypatch.setattr(masked_study, "execute", lambda runs: executed.extend(runs))

  def accuracy(run: Run):
    config = recipes.resolve(run.recipe, run.overrides)
    if config.data.evaluate["test"].split == "test":
      return 0.5 + config.seed / 10
    return 1 - abs(np.log(config.schedule.learning_rate / 1e-3))

  monkeypatch.setattr(masked_study, "top1", accuracy)
  rows = list(masked_study.measure(tmp_path, Size()))
  assert {row["learning_rate"] for row in rows} == {1e-3}
  assert len(rows) == 3 * len(masked_study.cells(Size()))
  scored = [run for run in executed if run.name.endswith("_test")]
  assert len({run.folder for run in scored}) == len(rows)
  lines = masked_report.summary(rows)
  assert {round(line["mean"], 6) for line in lines} == {0.6}
  assert lines[0]["deviation"] == pytest.approx(np.std([0.5, 0.6, 0.7], ddof=1))
  pretrain(tmp_path)
  masked_report.write(rows, tmp_path, tmp_path, Size())
  page = (tmp_path / "masked.md").read_text()
  assert page.count("60.00% ± 10.00%") == 9 + 6
  assert len((tmp_path / "masked.csv").read_text().splitlines()) == len(rows) + 1
  assert (tmp_path / "masked.png").stat().st_size > 10_000
  assert (tmp_path / "masked_learning.png").stat().st_size > 10_000
  assert (tmp_path / "masked_pixels.png").read_bytes() == b"pixels at 0.5, seed 0"
  assert "| `down4` | 15% | 2.3000 ± 0.1000 | 4.6000 | 50.0% |" in page
  assert "±" in masked_report.as_table(lines)


def pretrain(folder):
  """Makes up what the runs without labels leave; seeds 0, 1 and 2 have the losses 2.2, 2.3, 2.4."""
  for target in masked_study.TARGETS:
    for rate in masked_study.RATES:
      for seed in Size().seeds:
        run = masked_study.pretraining(folder, target, rate, seed, Size())
        pictures = run.folder / "pictures" / "held_out" / "patches"
        pictures.mkdir(parents=True)
        (pictures / "00002000.png").write_text(f"{target} at {rate:g}, seed {seed}")
        held_out = {"held_out/patch_loss": 2.2 + seed / 10, "held_out/patch_constant_loss": 4.6}
        lines = [
          {"step": 1000, "held_out/patch_loss": 9.0, "held_out/patch_constant_loss": 9.0},
          {"step": 2000, "loss": 1.0, "train/constant_loss": 2.0},
          {"step": 2000, **held_out},
        ]
        (run.folder / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
