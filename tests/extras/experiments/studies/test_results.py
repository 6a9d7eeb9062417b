"""Results: rows, means, deviations, the figure, a study that has changed."""

import dataclasses
import json
import re

import numpy as np
import pytest
from matplotlib.axes import Axes

from tests.extras.experiments.studies import stub
from vit_jax.config import RunError
from vit_jax.extras.experiments.studies import (
  Cell,
  Choice,
  Drawing,
  Paper,
  Score,
  Stage,
  Study,
  changes,
  figure,
  report,
  results,
)

WORTH = {0: 0.5, 1: 0.6, 2: 0.9}


@pytest.fixture
def finished(tmp_path, monkeypatch):
  """The folder of a study with the paper's figures, three seeds."""
  (tmp_path / "paper.csv").write_text("dropout,accuracy\n0.0,0.75\n")
  published = Paper(str(tmp_path / "paper.csv"), "accuracy", "a table of the paper")
  stub.Runs(monkeypatch, score=lambda one: WORTH[one.seed] - one.model.dropout)
  some = stub.study(0.0, 0.1, seeds=3, paper=published, means=(("dropout",),))
  stub.done(tmp_path / "study", some)
  return tmp_path / "study", some


def test_rows_are_tidy(finished):
  folder, _ = finished
  found = results.read_rows(folder / "results.csv")
  assert [(row["cell"], row["dropout"], row["seed"]) for row in found] == [
    (f"dropout {dropout}", dropout, f"{seed}") for dropout in ("0.0", "0.1") for seed in range(3)
  ]
  first = found[0]
  assert float(first["score"]) == float(first["test/top1"]) == 0.5
  assert (first["steps"], first["paper"]) == ("20", "0.75")  # of both stages
  assert float(first["exaflops"]) == pytest.approx(20 * 64 * 1e15 / 1e18)
  assert float(first["pretraining_exaflops"]) == pytest.approx(10 * 64 * 1e15 / 1e18)
  assert float(first["seconds"]) == 2 * 10 * 0.5
  assert '"model.dropout": 0.0' in first["settings"]
  assert (folder / "runs" / first["run"] / "metrics.jsonl").exists()


def test_means_and_deviations(finished):
  folder, _ = finished
  first, second = report.lines(results.read_rows(folder / "results.csv"))
  assert first.mean == pytest.approx(np.mean([0.5, 0.6, 0.9]))
  assert first.deviation == pytest.approx(np.std([0.5, 0.6, 0.9], ddof=1))
  assert (second.seeds, second.paper, first.paper) == (3, None, 0.75)
  page = (folder / report.PAGE).read_text()
  assert "| 0.0 | 0.6667 ± 0.2082 | 3 |" in page
  assert "| 0.7500 |" in page
  assert "a table of the paper" in page
  assert "missing" not in page
  assert "Mean over dropout, with the deviation of this mean over seeds:" in page
  assert "| 0.6167 ± 0.2082 | 3 |" in page


def scored_before(monkeypatch, line):
  """Runs have an evaluation before the last one: `line` of the accuracy of the last one."""
  finish = stub.finish

  def longer(folder, config, top1):
    finish(folder, config, top1)
    path = folder / "metrics.jsonl"
    path.write_text(json.dumps(line(top1)) + "\n" + path.read_text())

  monkeypatch.setattr(stub, "finish", longer)


def drawn(monkeypatch, folder, some, found, curves=()):
  """What the panels of the figure show: [[(x, y, deviation), ...] for each panel]."""
  panels, plain = [], Axes.errorbar

  def errorbar(axes, x, y, spread, **options):
    panels.append(list(zip(x, y, spread, strict=True)))
    return plain(axes, x, y, spread, **options)

  monkeypatch.setattr(Axes, "errorbar", errorbar)
  report.write(some, folder, found, "", curves=curves)
  return panels


def test_the_paper_s_panel_does_not_say_that_its_score_is_ours(finished, tmp_path):
  folder, some = finished
  drawing = dataclasses.replace(some.drawing, label="top-1 of ours")
  figure.draw(results.read_rows(folder / "results.csv"), drawing, [tmp_path / "figure.svg"])
  texts = (tmp_path / "figure.svg").read_text()
  assert texts.count("<!-- top-1 of ours -->") == 1
  assert texts.count("<!-- score in the paper -->") == 1


def test_the_figure_shows_what_results_csv_says_and_nothing_else(finished, monkeypatch, tmp_path):
  folder, some = finished
  kinds = {kind: (folder / f"figure.{kind}").read_bytes() for kind in ("svg", "png")}
  assert kinds["png"].startswith(b"\x89PNG")
  assert b"<svg" in kinds["svg"]
  found = results.read_rows(folder / "results.csv")
  for row in found:
    row["score"] = f"{float(row['score']) / 2}"
  new = tmp_path / "new"  # no run is here
  new.mkdir()
  ours, theirs = drawn(monkeypatch, new, some, found)
  assert [x for x, *_ in ours] == [0.0, 0.1]
  assert ours[0][1:] == pytest.approx((2 / 6, np.std([0.25, 0.3, 0.45], ddof=1)))
  assert theirs == [(0.0, 0.75, 0.0)]


def test_each_value_of_the_panel_has_its_own_rows(tmp_path, monkeypatch):
  """The paper has a figure for one of them."""
  found = [
    dict(cell=job, job=job, x="1", seed="0", score=score, paper=paper, chosen="{}")
    for job, score, paper in [("b", "0.5", ""), ("a", "0.7", "0.75")]
  ]
  some = dataclasses.replace(stub.study(0.0), drawing=Drawing(x="x", panel="job"))
  panels = drawn(monkeypatch, tmp_path, some, found)
  assert panels == [[(1.0, 0.5, 0.0)], [(1.0, 0.7, 0.0)], [(1.0, 0.75, 0.0)]]


def test_a_measured_column_has_a_panel_of_its_own_and_its_mean_for_each_cell(tmp_path, monkeypatch):
  common = dict(paper="", chosen="{}", exaflops="1")
  found = [
    dict(cell=cell, seed=f"{seed}", seconds=f"{seconds + seed}", score=f"{seed}", **common)
    for cell, seconds in [("slow", 20), ("fast", 10)]
    for seed in (0, 1)
  ]
  some = dataclasses.replace(stub.study(0.0), drawing=Drawing(x=("exaflops", "seconds")))
  flops, seconds = drawn(monkeypatch, tmp_path, some, found)
  spread = (0.5, pytest.approx(0.5**0.5))
  assert flops == [(1.0, *spread)] * 2
  assert seconds == [(10.5, *spread), (20.5, *spread)]


def test_curves_over_training_come_from_curves_csv(tmp_path, monkeypatch):
  """Each epoch is a point: the mean over the seeds of the evaluations there."""
  stub.Runs(monkeypatch, score=lambda one: WORTH[one.seed])
  scored_before(monkeypatch, lambda top1: {"step": 5, "test/top1": top1 / 2})
  drawing = Drawing(x="epoch", by="cell")
  some = dataclasses.replace(stub.study(0.0, seeds=3), drawing=drawing)
  stub.done(tmp_path, some)
  found = results.read_rows(tmp_path / "curves.csv")
  assert [(row["seed"], row["step"], row["epoch"], float(row["score"])) for row in found] == [
    (f"{seed}", *point)
    for seed, worth in WORTH.items()
    for point in [("5", "0.5", worth / 2), ("10", "1.0", worth)]
  ]
  (points,) = drawn(
    monkeypatch, tmp_path, some, results.read_rows(tmp_path / "results.csv"), curves=found
  )
  mean, spread = np.mean([0.5, 0.6, 0.9]), np.std([0.5, 0.6, 0.9], ddof=1)
  expected = [(0.5, mean / 2, spread / 2), (1.0, mean, spread)]
  np.testing.assert_allclose(points, expected)


def test_a_score_that_is_not_a_number_is_shown(tmp_path, monkeypatch):
  stub.Runs(monkeypatch, score=lambda one: "nan" if one.model.dropout else "inf")
  _, lines = stub.done(tmp_path, stub.study(0.0, 0.1, choice=Choice()))
  assert [report.score(line) for line in lines] == ["inf ± nan", "nan ± nan"]
  assert (tmp_path / "figure.png").exists()


def test_factors_of_any_text_are_one_line_of_the_page_and_read_back(tmp_path, monkeypatch):
  stub.Runs(monkeypatch)
  shown_as = {
    None: "None",
    "a|b": r"a\|b",
    "line\nbreak": r"line\\nbreak",
    "a\rreturn": r"a\\rreturn",
    "<b>": r"\<b>",
    "*a*": r"\*a\*",
    "_x_": r"\_x\_",
    "weight_decay": "weight_decay",
    "a~b": r"a\~b",
    "&amp;": r"\&amp;",
    "": "",
  }
  odd = list(shown_as)
  (cell,) = stub.study(0.0, choice=Choice()).cells
  cells = [dataclasses.replace(cell, label=f"{n}", factors={"f": v}) for n, v in enumerate(odd)]
  some = dataclasses.replace(stub.study(0.0, seeds=1), cells=cells, drawing=Drawing(x="f"))
  stub.done(tmp_path, some)
  assert [row["f"] for row in results.read_rows(tmp_path / "results.csv")] == ["None", *odd[1:]]
  page = (tmp_path / report.PAGE).read_text()
  shown = re.findall(r"^\| (.*) \| 0.5000 \| 1 \|$", page, flags=re.MULTILINE)
  assert shown == list(shown_as.values())


def test_stages_of_one_name_keep_their_settings_and_choices(tmp_path, monkeypatch):
  stub.Runs(monkeypatch)
  stage = Stage(stub.DIGITS, stub.STEPS, "all", choice=stub.CHOSEN)
  stage = Stage(stub.DIGITS, stub.STEPS | {"batch_size": 32}, "all", stage, stub.CHOSEN)
  some = Study((Cell("a", stage, {"x": 1}),), Drawing(x="x"), seeds=1)
  stub.done(tmp_path, some, overrides=("--config.model.dropout=0.1",))
  (row,) = results.read_rows(tmp_path / "results.csv")
  best = {"schedule.learning_rate": 0.003}
  assert json.loads(row["chosen"]) == {"all 2": best, "all 3": best}
  settings = json.loads(row["settings"])
  assert settings["all"] == ["--config.model.dropout=0.1"]
  assert [settings[name].get("batch_size") for name in ("all 2", "all 3")] == [None, 32]


def test_the_page_names_cells_that_the_figure_lacks(finished):
  folder, some = finished
  rows = results.read_rows(folder / "results.csv")
  some = dataclasses.replace(some, drawing=Drawing(x=("exaflops", "seconds")))
  assert "Not in the figure" not in report.page(some, rows, [], "")
  unknown = [row | dict(exaflops="") if row["dropout"] == "0.1" else row for row in rows]
  said = "Not in the figure, since their exaFLOPs are not known: dropout 0.1."
  assert said in report.page(some, unknown, [], "")


def test_the_best_of_all_evaluations(tmp_path, monkeypatch):
  stub.Runs(monkeypatch)
  some = stub.study(0.0, seeds=1, score=Score("test/loss", "best", "smaller"))
  scored_before(monkeypatch, lambda _: {"step": 4, "test/loss": 0.25, "test/top1": 0.5})
  _, (line,) = stub.done(tmp_path, some)
  assert line.mean == 0.25


def test_a_metric_that_a_run_did_not_write(tmp_path, monkeypatch):
  stub.Runs(monkeypatch)
  with pytest.raises(RunError, match=r"tuning-seed0-\w+ has no imagenet/5shot; its evaluation wro"):
    stub.done(tmp_path, stub.study(0.0, score=Score("imagenet/5shot")))


@pytest.mark.parametrize("choice", [stub.CHOSEN, Choice()])
def test_a_changed_study_names_its_cells_and_keeps_both(tmp_path, monkeypatch, capfd, choice):
  ran = stub.Runs(monkeypatch)
  stub.done(tmp_path, stub.study(0.0, 0.1, choice=choice))
  assert "has changed" not in capfd.readouterr().err
  before, count = results.read_rows(tmp_path / "results.csv"), len(ran.called)
  changed = stub.study(0.0, 0.1, choice=choice)
  cell = changed.cells[1]
  stage = dataclasses.replace(cell.stage, settings={**cell.stage.settings, "batch_size": 32})
  cells = (changed.cells[0], dataclasses.replace(cell, stage=stage))
  stub.done(tmp_path, dataclasses.replace(changed, cells=cells))
  said = capfd.readouterr().err
  assert "The study has changed: the results of the cells 'dropout 0.1' were of other runs" in said
  assert {config.batch_size for config in ran.called[count:]} == {32}
  assert [row["run"] for row in results.read_rows(tmp_path / changes.EARLIER)] == [
    row["run"] for row in before if row["cell"] == "dropout 0.1"
  ]
  assert all((tmp_path / "runs" / row["run"] / "metrics.jsonl").exists() for row in before)
  count = len(ran.called)
  stub.done(tmp_path, stub.study(0.0, 0.1, choice=choice))  # back again: its runs are there
  assert len(ran.called) == count
  assert results.read_rows(tmp_path / "results.csv") == before


def test_damaged_files_of_a_study(tmp_path, monkeypatch):
  stub.Runs(monkeypatch)
  stub.done(tmp_path, stub.study(0.0, seeds=1))
  for text, message in [
    ("a,b\n1,2\n", "has no column 'cell'; move it away"),
    ("cell,run\na,b,c\n", "row 1 below the head has too many or too few cells.*move it away"),
    ("cell,run\na\n", "row 1 below the head has too many or too few cells.*move it away"),
  ]:
    (tmp_path / "results.csv").write_text(text)
    with pytest.raises(RunError, match=message):
      stub.done(tmp_path, stub.study(0.0, seeds=1))


def test_means_over_a_factor_need_all_of_its_cells(tmp_path):
  """Against NumPy; a seed that one cell lacks is left out, and so is a line without seeds."""
  names = [("a", "x"), ("a", "y"), ("b", "x"), ("b", "y"), ("c", "x"), ("c", "y")]
  cells = [Cell(f"{m} {t}", Stage("r"), {"task": t, "model": m}) for m, t in names]
  draw = np.random.default_rng(0)
  scores = draw.random((6, 3))
  missing = {("a y", 1), ("c x", 0), ("c x", 1), ("c x", 2)}
  found = [
    dict(cell=cell.label, seed=f"{seed}", score=f"{scores[i, seed]}", paper=paper)
    for i, (cell, paper) in enumerate(zip(cells, ("0.5", "0.7", "0.5", "", "1", "1"), strict=True))
    for seed in range(3)
    if (cell.label, seed) not in missing
  ]
  first, second = report.means(cells, found, ("task",))
  own = scores[:2, [0, 2]].mean(axis=0)
  assert (first.factors, first.seeds, first.paper) == ({"model": "a"}, 2, pytest.approx(0.6))
  assert first.mean == pytest.approx(own.mean())
  assert first.deviation == pytest.approx(own.std(ddof=1))
  assert (second.factors, second.seeds, second.paper) == ({"model": "b"}, 3, None)
  (both,) = report.means(cells[:4], found, ("task", "model"))
  assert (both.factors, both.seeds) == ({}, 2)
  assert both.mean == pytest.approx(scores[:4, [0, 2]].mean())
