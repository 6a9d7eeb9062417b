"""Logged losses and accuracies are means over the steps since the last line, whatever happens."""

import dataclasses

import jax
import numpy as np
import pytest

from tests.seams.program import StopAfter
from tests.tiny_run import CONFIG
from vit_jax import launch
from vit_jax.config import Checkpoint, ConfigError, Duration
from vit_jax.evaluation import catalogue
from vit_jax.learning.classification import Classification
from vit_jax.storage import metrics_log
from vit_jax.training import run as runs
from vit_jax.training.loop import MetricAccumulator

NAMES = {"loss": "batch/loss", "training/accuracy": "batch/accuracy"}


def train(folder, *, log_every, stops=()):
  """The lines of training of a run of 7 steps, stopped after one of them and started again."""
  config = dataclasses.replace(
    CONFIG,
    duration=Duration(steps=7),
    log_every=Duration(steps=log_every),
    evaluate={},
    checkpoint=Checkpoint(every=Duration(steps=100)),
  )
  data = runs.open_data(config)
  for stop in (*stops, None):
    made = runs.make(config, data, jax.devices()[:1])
    assert launch.train(made, folder, StopAfter(stop)) == (stop is None)
  return {line["step"]: line for line in metrics_log.read_lines(folder) if "loss" in line}


def test_lines_are_means_of_single_batches_also_of_a_run_that_was_stopped(tmp_path):
  single = train(tmp_path / "single", log_every=1)
  means = train(tmp_path / "means", log_every=3, stops=(4,))
  assert [*means] == [3, 6, 7]
  for mean, of_batch in NAMES.items():
    values = [line[mean] for line in single.values()]
    assert values == [line[of_batch] for line in single.values()]
    wanted = [np.mean(values[:3]), np.mean(values[3:6]), values[6]]
    np.testing.assert_allclose([line[mean] for line in means.values()], wanted, rtol=1e-12)
    assert [line[of_batch] for line in means.values()] == [values[2], values[5], values[6]]
  named = {key.partition("/")[0] for line in single.values() for key in line if "/" in key}
  assert named == {*catalogue.OF_TRAINING}  # which evaluations cannot be called


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("blended", [False, True])
def test_the_accuracy_against_numpy(several, blended):
  rng = np.random.default_rng(0)
  logits = rng.normal(size=(8, 5)).astype(np.float32)
  labels = rng.integers(0, 2, (2, 8, 5)) if several else rng.integers(0, 5, (2, 8))
  if several:
    labels[0, :3] = 0  # images without a label neither count as right nor as wrong
    labels[1, 2:5] = 0
  mask, share = np.float32([1, 1, 1, 0, 1, 1, 1, 1]), np.float32(rng.uniform(size=8))
  batch = dict(image=np.zeros((8, 4, 4, 3), np.uint8), labels=labels[0], mask=mask)
  if blended:
    batch |= dict(partner_image=batch["image"], partner_labels=labels[1], share=share)
  else:
    share = np.ones(8)

  class Known:
    dtype = np.float32

    def apply(self, *_, **__):
      return logits, {}

  sums = Classification(Known()).loss({}, {}, batch, jax.random.key(0))
  hit = [
    [bool(one[i, k]) if several else one[i] == k for i, k in enumerate(logits.argmax(axis=1))]
    for one in labels
  ]
  has = [one.any(axis=-1) if several else np.ones(8) for one in labels]
  wanted = [(mask * (share * one[0] + (1 - share) * one[1])).sum() for one in (hit, has)]
  assert [float(x) for x in sums.metrics["accuracy"]] == pytest.approx(wanted, rel=1e-6)


def test_a_record_keeps_the_sums_and_a_damaged_one_is_named():
  since = MetricAccumulator()
  assert since.take() == {"skipped": 0}
  since.add({"loss": 2.0, "accuracy": 0.5})
  since.add({"loss": 4.0, "accuracy": float("nan")})  # no image of this batch has a label
  since.skipped += 1
  again = MetricAccumulator.recorded({"since_line": dataclasses.asdict(since)})
  assert again.take() == {"loss": 3.0, "accuracy": 0.5, "skipped": 1}
  assert again.take() == {"skipped": 0}
  earlier = MetricAccumulator.recorded({"since_line": {"steps": 2, "sums": {"loss": 6.0}}})
  assert earlier.take() == {"loss": 3.0, "skipped": 0}
  known = {"sums": {"loss": 1.0}, "counts": {"loss": 1}, "skipped": 0}
  for damaged in (None, {}, known | {"sums": {"loss": "x"}}, known | {"counts": {}}):
    with pytest.raises(ConfigError, match="since_line="):
      MetricAccumulator.recorded({"since_line": damaged})
