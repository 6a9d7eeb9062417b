"""Which evaluation is the best, when a run stops, and that a resumed run decides the same."""

import json
import math
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.experimental import multihost_utils

from tests import programs
from tests.ends import assert_equal_ends
from vit_jax.config import ConfigError
from vit_jax.config import EarlyStopping as Settings
from vit_jax.process import text
from vit_jax.storage import checkpoint, metrics_log
from vit_jax.training import early_stopping
from vit_jax.training.early_stopping import Best, EarlyStopping, best_of


def watched(values, *, patience, metric="val/top1"):
  """The watch when it stops the run (else after all values), and the step of the stop or None."""
  watch = EarlyStopping(Settings(metric=metric, patience=patience), Best())
  for step, value in enumerate(values, 1):
    might_stop = watch.may_stop
    watch.note(step, {"val/top1": value, "val/loss": value, "val/examples": 9})
    if watch.should_stop:
      assert might_stop
      return watch.best, step
  return watch.best, None


@pytest.mark.parametrize(
  ("metric", "values", "patience", "best", "end"),
  [
    ("val/top1", [0.1, 0.3, 0.2, 0.3, 0.1, 0.9], 3, (2, 0.3), 5),  # equal is not better
    ("val/top1", [0.1, 0.3, 0.2, 0.2, 0.4, 0.3, 0.3], 3, (5, 0.4), None),
    ("val/top1", [0.1, 0.2, 0.3], 1, (3, 0.3), None),
    ("val/top1", [0.3, 0.2], 1, (1, 0.3), 2),
    ("val/top1", [0.9] + [0.1] * 99, 0, (1, 0.9), None),
    ("val/top1", [math.nan, 0.2, math.nan, 0.1], 2, (2, 0.2), 4),
    ("val/top1", [-math.inf, -1.0], 1, (2, -1.0), None),
    ("val/top1", [math.nan] * 5, 3, (0, math.nan), 3),
    ("val/loss", [0.5, 0.4, 0.6, 0.5], 2, (2, 0.4), 4),
    ("", [0.5, 0.4], 0, (0, math.nan), None),
  ],
)
def test_made_up_metrics(metric, values, patience, best, end):
  found, stopped = watched(values, patience=patience, metric=metric)
  assert ((found.step, found.value), stopped) == (pytest.approx(best, nan_ok=True), end)


def test_hosts_agree_to_the_last_bit(monkeypatch):
  """Each host must hold exactly the first host's metric: a rounded one would not equal it."""
  monkeypatch.setattr(early_stopping.jax, "process_count", lambda: 2)
  monkeypatch.setattr(multihost_utils, "broadcast_one_to_all", np.array)
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
  """The checkpoint is of evaluation `split`; of the lines up to it, `kept` are left.

  The checkpoint of an earlier version does not tell the best; then all lines must be there.
  """
  settings = Settings(metric="val/top1", patience=patience)
  whole, saved = EarlyStopping(settings, Best()), EarlyStopping(settings, Best())
  lines = [{"step": 0, "loss": 0.5}]
  for i, value in enumerate(values, 1):
    lines.append(json.loads(json.dumps({"step": i, "val/top1": text.finite(value)})))
    might, best = whole.may_stop, str(whole.best)
    whole.note(i, {"val/top1": value})
    worse = whole.best.since > 0 and str(whole.best) != best
    assert not whole.should_stop or worse
    assert whole.should_stop or not (might and worse)
    if i <= split:
      saved.note(i, {"val/top1": value})
  meta = json.loads(json.dumps(saved.description()))
  best = early_stopping.recorded(meta, "val/top1")
  for found in (
    best_of(lines[: 1 + min(kept, split)], "val/top1", best),
    best_of(lines[: 1 + split], "val/top1"),
  ):
    assert str(found) == str(saved.best)  # NaN is not equal to itself
    resumed = EarlyStopping(settings, found)
    for i, value in enumerate(values, 1):
      if i >= split:  # the evaluation of the checkpoint's step, whose line is gone, is made again
        resumed.note(i, {"val/top1": value})
    assert str(resumed.best) == str(whole.best)
    assert resumed.should_stop == whole.should_stop


def test_a_checkpoint_has_the_best_of_one_metric_and_earlier_ones_have_none():
  """A run that is asked to stop saves first, and its next start evaluates and may be killed."""
  meta = EarlyStopping(Settings(metric="a/b"), Best(3, 0.5, 1, 4)).description()
  saved = early_stopping.recorded(meta, "a/b")
  assert saved == Best(3, 0.5, 1, 4)
  assert str(early_stopping.recorded(meta, "a/c")) == str(Best())
  assert EarlyStopping(Settings(), Best()).description() == {}
  lines = [{"step": step, "a/b": value} for step, value in ((3, 0.5), (4, 0.1), (5, 0.7))]
  assert best_of(lines, "a/b", saved) == Best(5, 0.7, 0, 5)
  for change in ({"step": "x"}, {"value": None}, {"since": 1.5}, {"seen": None}):
    with pytest.raises(ConfigError, match="A checkpoint is damaged: best="):
      early_stopping.recorded({"best": meta["best"] | change}, "a/b")


def test_a_run_stops_and_keeps_the_best_and_decides_the_same_when_resumed(tmp_path):
  settings = (
    "--config.early_stopping.metric=test/top1",
    "--config.early_stopping.patience=3",
    "--config.evaluate_every.steps=4",
    "--config.log_every.steps=7",
    "--config.optimizer.ema=0.9",
    # The head begins with zeros, so the smallest update decides between the classes. With this
    # setting no metric changes, whatever the order of the images.
    "--config.schedule.learning_rate=0.0",
  )
  whole, cut = tmp_path / "whole", tmp_path / "cut"
  result = programs.run(programs.digits(whole, *settings))
  assert result.returncode == 0, result.stderr
  lines = metrics_log.read_lines(whole)
  metrics = {x["step"]: x["test/top1"] for x in lines if "test/top1" in x}
  *_, end = metrics
  best = max(metrics, key=metrics.get)
  assert end == best + 12 < 40
  assert end in [x["step"] for x in lines if "loss" in x]  # no line is due then
  kept = checkpoint.available(whole)
  assert (kept[0], kept[-1], len(kept)) == (best, end, 3)
  said = f"Best:       test/top1 {metrics[best]:.4f} after step {best}, "
  for words in (
    "Stopped early: 3 evaluations in a row gave no better test/top1.",
    f"{said}{whole}",
    f"--config.evaluate_step={best})",
    f"params.npz --step {best}\n",
  ):
    assert words in result.stdout
  told = early_stopping.best_elsewhere(whole)
  assert told.endswith(f"step {end}; the best by test/top1 is {whole}/checkpoints/{best}.")
  assert early_stopping.best_elsewhere(whole / f"checkpoints/{best}") == ""
  details = whole / "evaluation/1/test"
  assert json.loads((details / "metrics.json").read_text())["step"] == end
  assert (details / "predictions.csv").is_file()

  shutil.copytree(whole, cut)  # as if it had been killed before it saved for the last time
  shutil.rmtree(cut / f"checkpoints/{end}")
  again = programs.run(programs.digits(cut, *settings))
  assert again.returncode == 0, again.stderr
  assert f"resuming after step {kept[1]}" in again.stdout
  assert f"{said}{cut}" in again.stdout
  assert checkpoint.available(cut) == kept
  assert_equal_ends(cut, whole, step=end)
  # A checkpoint is saved before its evaluation, so only the log has that.
  shutil.rmtree(cut / f"checkpoints/{end}")
  assert early_stopping.best_elsewhere(cut).endswith(f"{cut}/checkpoints/{best}.")
  log = cut / "metrics.jsonl"
  better = [line | {"test/top1": 1.0} if line["step"] == kept[1] else line for line in lines]
  log.write_text("".join(f"{json.dumps(line)}\n" for line in better))
  assert early_stopping.best_elsewhere(cut) == ""


def test_a_best_without_its_checkpoint_is_said_to_have_none(tmp_path):
  watch = EarlyStopping(Settings(metric="val/top1"), Best(4, 0.5, 3))
  (said,) = watch.in_words(tmp_path)
  assert said.endswith("val/top1 0.5000 after step 4, of which there is no checkpoint")
  assert watch.flag(tmp_path) == ""
