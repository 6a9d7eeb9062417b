"""Which evaluation is the best, when a run stops, and that a resumed run decides the same."""

import json
import math
import shutil
import types

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.experimental import multihost_utils

from tests import programs
from tests.ends import assert_equal_ends
from vit_jax.config import ConfigError
from vit_jax.config import EarlyStopping as Settings
from vit_jax.process import json_text
from vit_jax.storage import checkpoint, metrics_log
from vit_jax.training import early_stopping
from vit_jax.training.early_stopping import Best, EarlyStopping, best_of
from vit_jax.training.loop import Callback, Loop
from vit_jax.training.steps import ImageCount


def watched(values, *, patience, metric="val/top1"):
  """The watch when it stops the run (else after all values), and the step of the stop or None."""
  watch = EarlyStopping(Settings(metric=metric, patience=patience), Best())
  for step, value in enumerate(values, 1):
    watch.note(step, {metric: value, "val/examples": 9})
    if watch.should_stop:
      return watch.best, step
  return watch.best, None


@pytest.mark.parametrize(
  ("values", "patience", "best", "end"),
  [
    ([0.1, 0.3, 0.2, 0.3, 0.1, 0.9], 3, (2, 0.3), 5),  # equal is not better
    ([0.1, 0.3, 0.2, 0.2, 0.4, 0.3, 0.3], 3, (5, 0.4), None),
    ([0.1, 0.2, 0.3], 1, (3, 0.3), None),
    ([0.3, 0.2], 1, (1, 0.3), 2),
    ([0.9] + [0.1] * 99, 0, (1, 0.9), None),
    ([math.nan, 0.2, math.nan, 0.1], 2, (2, 0.2), 4),
    ([-math.inf, -1.0], 1, (2, -1.0), None),
  ],
)
def test_made_up_metrics(values, patience, best, end):
  found, stopped = watched(values, patience=patience)
  assert ((found.step, found.value), stopped) == (best, end)


def test_a_loss_is_better_when_it_is_smaller():
  best, end = watched([0.5, 0.4, 0.6, 0.5], patience=2, metric="val/loss")
  assert (best.step, end) == (2, 4)


def test_only_nan():
  best, end = watched([math.nan] * 5, patience=3)
  assert (best.step, end) == (0, 3)


def test_off():
  watch = EarlyStopping(Settings(), Best())
  watch.note(1, {"val/top1": 0.5})
  assert (watch.best.step, watch.should_stop, watch.in_words(None)) == (0, False, [])


@given(
  values=st.lists(st.floats(0, 1) | st.just(math.nan), max_size=20),
  split=st.integers(0, 20),
  patience=st.integers(0, 5),
)
def test_a_resumed_run_decides_as_one_that_was_not_stopped(values, split, patience):
  lines = [{"step": i, "loss": 0.5} for i in range(3)]
  lines += [
    json.loads(json.dumps({"step": i, "val/top1": json_text.finite(value)}))
    for i, value in enumerate(values, 1)
  ]
  settings = Settings(metric="val/top1", patience=patience)
  watch, resumed = (
    EarlyStopping(settings, Best()),
    EarlyStopping(settings, best_of(lines[: 3 + split], "val/top1")),
  )
  for i, value in enumerate(values, 1):
    watch.note(i, {"val/top1": value})
    if i > split:
      resumed.note(i, {"val/top1": value})
  assert str(resumed.best) == str(watch.best)  # NaN is not equal to itself
  assert resumed.should_stop == watch.should_stop


@given(values=st.lists(st.floats(0, 1) | st.just(math.nan)), patience=st.integers(0, 4))
def test_only_an_evaluation_that_may_end_the_run_ends_it(values, patience):
  watch = EarlyStopping(Settings(metric="val/top1", patience=patience), Best())
  for i, value in enumerate(values, 1):
    might, best = watch.may_stop, str(watch.best)
    watch.note(i, {"val/top1": value})
    worse = watch.best.since > 0 and str(watch.best) != best
    assert watch.should_stop == (might and worse)
    if watch.should_stop:
      break


def test_hosts_agree_to_the_last_bit(monkeypatch):
  """Each host must hold exactly the first host's metric: a rounded one would not equal it."""
  monkeypatch.setattr(early_stopping.jax, "process_count", lambda: 2)
  as_jax = lambda words: np.asarray(words).astype(np.uint32)  # as JAX has it without 64 bits
  monkeypatch.setattr(multihost_utils, "broadcast_one_to_all", as_jax)
  for best in (Best(2**31 + 1, 0.1 + 2**-50, 7, 5), Best(3, -math.inf), Best(0, 1e-300, 3, 9)):
    assert early_stopping.agreed(best) == best


@given(
  values=st.lists(st.floats() | st.just(math.nan), min_size=1, max_size=12),
  split=st.integers(0, 12),
  kept=st.integers(0, 12),
  patience=st.integers(0, 5),
)
def test_a_run_whose_metrics_are_older_than_its_checkpoint_decides_the_same(
  values, split, kept, patience
):
  """The checkpoint is of evaluation `split`; of the lines up to it, `kept` are left."""
  settings = Settings(metric="val/top1", patience=patience)
  whole, saved = EarlyStopping(settings, Best()), EarlyStopping(settings, Best())
  lines = [
    {"step": i, "val/top1": json_text.finite({"x": value})["x"]}
    for i, value in enumerate(values, 1)
  ]
  for i, value in enumerate(values, 1):
    whole.note(i, {"val/top1": value})
    if i <= split:
      saved.note(i, {"val/top1": value})
  meta = json.loads(json.dumps(saved.description()))
  best = early_stopping.recorded(meta, "val/top1")
  best = best_of(lines[: min(kept, split)], "val/top1", best)
  assert str(best) == str(saved.best)
  resumed = EarlyStopping(settings, best)
  for i, value in enumerate(values, 1):
    if i >= split:  # the evaluation of the checkpoint's step, whose line is gone, is made again
      resumed.note(i, {"val/top1": value})
  assert str(resumed.best) == str(whole.best)
  assert resumed.should_stop == whole.should_stop


def test_an_evaluation_after_the_checkpoint_of_its_step_counts():
  """A run that is asked to stop saves first, and its next start evaluates and may be killed."""
  meta = EarlyStopping(Settings(metric="a/b"), Best(3, 0.5, 1, 4)).description()
  lines = [{"step": step, "a/b": value} for step, value in ((3, 0.5), (4, 0.1), (5, 0.7))]
  found = best_of(lines, "a/b", early_stopping.recorded(meta, "a/b"))
  assert found == Best(5, 0.7, 0, 5)


def test_a_checkpoint_has_the_best_of_one_metric_and_earlier_ones_have_none():
  meta = EarlyStopping(Settings(metric="a/b"), Best(3, 0.5, 1, 4)).description()
  assert early_stopping.recorded(meta, "a/b") == Best(3, 0.5, 1, 4)
  assert str(early_stopping.recorded(meta, "a/c")) == str(Best())
  assert str(early_stopping.recorded({}, "a/b")) == str(Best())
  assert EarlyStopping(Settings(), Best()).description() == {}


@pytest.mark.parametrize("change", [{"step": "x"}, {"value": None}, {"since": 1.5}, {"seen": None}])
def test_a_description_that_is_damaged_is_one_sentence(change):
  meta = EarlyStopping(Settings(metric="a/b"), Best(3, 0.5, 1, 4)).description()
  with pytest.raises(ConfigError, match="A checkpoint is damaged: best="):
    early_stopping.recorded({"best": meta["best"] | change}, "a/b")


def settled(workdir):
  return programs.digits(
    workdir,
    "--config.early_stopping.metric=test/top1",
    "--config.early_stopping.patience=3",
    "--config.evaluate_every.steps=4",
    "--config.optimizer.ema=0.9",
    # The head begins with zeros, so the smallest update decides between the classes. With this
    # setting no metric changes, whatever the order of the images.
    "--config.schedule.learning_rate=0.0",
  )


def test_a_run_stops_and_keeps_the_best_and_decides_the_same_when_resumed(tmp_path):
  whole, cut = tmp_path / "whole", tmp_path / "cut"
  result = programs.run(settled(whole))
  assert result.returncode == 0, result.stderr
  metrics = {x["step"]: x["test/top1"] for x in metrics_log.read_lines(whole) if "test/top1" in x}
  *_, end = metrics
  best = max(metrics, key=metrics.get)
  assert end == best + 12 < 40
  kept = checkpoint.available(whole)
  assert (kept[0], kept[-1], len(kept)) == (best, end, 3)
  assert "Stopped early: 3 evaluations in a row gave no better test/top1." in result.stdout
  assert f"Best:       test/top1 {metrics[best]:.4f} after step {best}, {whole}" in result.stdout
  assert f"--config.evaluate_step={best})" in result.stdout
  assert f"params.npz --step {best}\n" in result.stdout
  details = whole / "evaluation/1/test"
  assert json.loads((details / "metrics.json").read_text())["step"] == end
  assert (details / "predictions.csv").is_file()

  shutil.copytree(whole, cut)  # as if it had been killed before it saved for the last time
  shutil.rmtree(cut / f"checkpoints/{end}")
  again = programs.run(settled(cut))
  assert again.returncode == 0, again.stderr
  assert f"resuming after step {kept[1]}" in again.stdout
  assert f"Best:       test/top1 {metrics[best]:.4f} after step {best}, {cut}" in again.stdout
  assert checkpoint.available(cut) == kept
  assert_equal_ends(cut, whole, step=end)


def test_a_run_that_stopped_does_no_step_when_started_again():
  watch = EarlyStopping(Settings(metric="val/top1", patience=3), Best(4, 0.5, 3))
  run = types.SimpleNamespace(
    steps=types.SimpleNamespace(total=40), resume_point=ImageCount(16, 0, 0)
  )

  class Evaluation(Callback):
    def start(self, moment):
      moment.ending = watch.should_stop

  monitor = types.SimpleNamespace(start=lambda step: None)
  assert Loop(run, None, [Evaluation()], stop=None, monitor=monitor, watchdog=None).train(None)


def test_a_best_without_its_checkpoint_is_said_to_have_none(tmp_path):
  watch = EarlyStopping(Settings(metric="val/top1"), Best(4, 0.5, 3))
  assert watch.in_words(tmp_path) == [
    "Best:       val/top1 0.5000 after step 4, of which there is no checkpoint"
  ]
  assert watch.flag(tmp_path) == ""
