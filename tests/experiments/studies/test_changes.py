"""What counts as a change of a study, and what tells its cells and its weights apart."""

import dataclasses
import math
import os

import pytest

from tests import programs
from tests.experiments.studies import stub
from vit_jax.config import ConfigError, RunError
from vit_jax.experiments.studies import (
  Cell,
  Drawing,
  Stage,
  Study,
  conduct,
  content,
  ledger,
  memory,
  summary,
)
from vit_jax.experiments.studies.ledger import Ledger
from vit_jax.experiments.studies.loading import load
from vit_jax.experiments.studies.study import check


def clear():
  """Forgets what was read, as a new process has."""
  content.of_weights.cache_clear()
  ledger.fingerprint.cache_clear()


@pytest.fixture(autouse=True)
def _new():
  clear()


def test_a_new_candidate_is_no_change(tmp_path, monkeypatch):
  ran = stub.Runs(monkeypatch)
  few = dataclasses.replace(stub.CHOSEN, options=stub.RATES[:2])
  stub.done(tmp_path, stub.study(0.0, choice=few))
  count = len(ran.called)
  assert memory.note(stub.study(0.0), Ledger(tmp_path)) == ""
  stub.done(tmp_path, stub.study(0.0))
  assert [one.schedule.learning_rate for one in ran.called[count:]] == [1e-2]  # its trial
  assert not (tmp_path / memory.EARLIER).exists()
  assert "no longer match" in memory.note(stub.study(0.0, choice=few), Ledger(tmp_path))


def test_nothing_is_chosen_if_no_candidate_has_a_number(tmp_path, monkeypatch):
  stub.Runs(monkeypatch, score=lambda one: math.nan)
  with pytest.raises(RunError, match=r"Nothing can be chosen for 'tuning': test/top1 is not a num"):
    stub.done(tmp_path, stub.study(0.0))


def weights_study(path):
  stage = Stage(stub.DIGITS, {**stub.STEPS, "init_from": str(path)}, name="tuning")
  return Study((Cell("a", stage, {"x": 1}),), Drawing(x="x"), seeds=1)


@pytest.mark.parametrize("kind", ["file", "card", "workdir", "huggingface"])
def test_other_weights_at_the_same_path_are_other_runs(tmp_path, monkeypatch, kind):
  ran = stub.Runs(monkeypatch)
  path, changing = {
    "file": (tmp_path / "w.npz", tmp_path / "w.npz"),
    "card": (tmp_path / "w.npz", tmp_path / "w.json"),
    "workdir": (tmp_path / "w", tmp_path / "w/checkpoints/9/manifest.json"),
    "huggingface": (tmp_path / "w", tmp_path / "w/model.safetensors"),
  }[kind]
  changing.parent.mkdir(parents=True, exist_ok=True)
  if kind == "card":
    path.touch()
  changing.write_text("1")
  for text, runs in (("1", 1), ("2", 2), ("1", 2)):
    changing.write_text(text)
    os.utime(changing, (0, 0))  # neither time nor size tells them apart
    clear()
    stub.done(tmp_path / "study", weights_study(path))
    assert len(ran.called) == runs


def test_of_a_workdir_the_newest_checkpoint_counts(tmp_path):
  for step, text in ((9, "nine"), (10, "ten")):
    folder = tmp_path / "checkpoints" / str(step)
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(text)
  both = content.of_weights(str(tmp_path))
  assert both == content.of_weights(str(tmp_path / "checkpoints/10"))
  assert both != content.of_weights(str(tmp_path / "checkpoints/9"))
  assert content.of_weights(str(tmp_path / "none")) == ""


def test_weights_that_cannot_be_read(tmp_path):
  with pytest.raises(ConfigError, match="cannot be read"):
    content.sum_of(tmp_path / "gone.npz")


@pytest.mark.parametrize(
  ("name", "override"),
  [
    ("compute", "schedule.learning_rate=0.01"),
    ("compute", "data.train.source=tfds:x"),
    ("data_size", "duration.steps=100"),
    ("resolution", "optimizer.kind=sgd"),
  ],
)
def test_the_command_line_cannot_set_what_stages_differ_in(name, override, monkeypatch):
  monkeypatch.chdir(programs.ROOT)
  study = load(f"configs/studies/{name}.py", "small")
  with pytest.raises(ConfigError, match="is set by the study itself"):
    conduct.check_overrides(study, (f"--config.{override}",))


def result(cell, factors):
  return summary.CellResult(cell, factors, 0.5, None, 1, "{}", None)


def test_cells_have_their_labels_where_factors_do_not_tell_them_apart():
  alike = [result("adam", {}), result("sgd", {})]
  assert [row[0] for row in summary.cells(alike)] == ["cell", "adam", "sgd"]
  assert summary.table(alike).splitlines()[1].startswith("adam")
  apart = [result("a", {"x": "1"}), result("b", {"x": "2"})]
  assert [row[0] for row in summary.cells(apart)] == ["x", "1", "2"]


@pytest.mark.parametrize(
  ("text", "shown"),
  [("_x_", r"\_x\_"), ("weight_decay", "weight_decay"), ("a~b", r"a\~b"), ("&amp;", r"\&amp;")],
)
def test_markup_in_names_is_shown_as_it_is(text, shown):
  assert summary.escaped(text) == shown


def test_over_epochs_only_columns_of_the_curves_are_drawn():
  cells = (Cell("a", Stage(stub.DIGITS, stub.STEPS), {"x": 1}),)
  for by in ("x", "cell", "seed"):
    check(Study(cells, Drawing(x="epoch", by=by)), "s")
  with pytest.raises(ConfigError, match=r"draws 'chosen', which is no factor"):
    check(Study(cells, Drawing(x="epoch", by="chosen")), "s")
