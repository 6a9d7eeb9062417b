"""What made the numbers of a study, and what has changed since; all studies by one command."""

import dataclasses
import json

import pytest

from tests.extras.experiments.studies import stub
from vit_jax.config import ConfigError, RunError, Stopped
from vit_jax.extras.commands import study as tool
from vit_jax.extras.experiments.studies import command, loading, record, results, stale
from vit_jax.extras.experiments.studies.study import Score
from vit_jax.process import program
from vit_jax.storage import workdir

SETTINGS = {name: f"sum of {name.rpartition('/')[2]}" for name in record.PLACES}


@pytest.fixture(autouse=True)
def sums(monkeypatch):
  """Checksums by the name of the package, so that tests need not read the whole code."""
  monkeypatch.setattr(record, "sum_of", lambda place: f"sum of {place.name}")


def test_a_checksum_is_of_what_the_code_does(tmp_path, monkeypatch):
  monkeypatch.undo()
  file = tmp_path / "package" / "a.py"
  file.parent.mkdir()

  def sum_with(text):
    record.sum_of.cache_clear()
    file.write_text(text)
    return record.sum_of(file.parent)

  first = sum_with('"""About."""\nx = 1  # one\ndef f():\n  """It."""\n  return 2\n')
  assert sum_with('"""More."""\n\nx = 1\n\ndef f():\n  """That."""\n  return 2\n') == first
  assert sum_with('"""About."""\nx = 1\ndef f():\n  """It."""\n  return 3\n') != first


def test_the_code_of_an_objective_counts_where_it_is():
  assert record.code(["classification"]) == SETTINGS
  of_masked = record.code(["classification", "masked_patches"])
  assert of_masked == SETTINGS | {"objective": "sum of masked_patches"}
  of_mae = record.code(["mae"])["objective"]
  assert of_mae == "sum of mae.py sum of masked_patches"  # from which it imports


def started(folder, revision, code):
  folder.mkdir(parents=True, exist_ok=True)
  workdir.add_start(folder, dict(revision=revision, code=code))
  return folder


def test_a_row_has_the_commit_and_keeps_the_code_that_made_it(tmp_path):
  new = started(tmp_path / "new", "abc", program.code())
  old = started(tmp_path / "old", "def", "earlier code")
  made = json.dumps(SETTINGS)
  of = lambda folders, before: record.origin(folders, ["classification"], before)
  assert of([new], {}) == dict(commit="abc", code=made)
  assert of([old, new], {}) == dict(commit="abc", code="")
  assert of([old], dict(code="known")) == dict(commit="def", code="known")
  assert of([tmp_path], {}) == dict(commit="", code="")


def recorded(folder, monkeypatch, *dropouts):
  """The rows of a finished study."""
  stub.Runs(monkeypatch)
  stub.done(folder, stub.study(*dropouts))
  rows = results.read_rows(folder / "results.csv")
  assert {row["code"] for row in rows} == {""}  # of runs without a record
  return [row | {"code": json.dumps(SETTINGS)} for row in rows]


def test_what_has_changed_is_named(tmp_path, monkeypatch):
  rows = recorded(tmp_path, monkeypatch, 0.0, 0.1)
  said = lambda study, rows: [
    *stale.changed_cells(study, rows),
    *stale.changed_code(study, rows),
  ]
  study = stub.study(0.0, 0.1)
  assert said(study, rows) == []
  assert said(stub.study(0.0, 0.1, 0.2), rows) == [
    "no numbers, or of too few seeds, of 'dropout 0.2'"
  ]
  more = dataclasses.replace(study, seeds=study.seeds + 1)
  assert said(more, rows) == ["no numbers, or of too few seeds, of 'dropout 0.0', 'dropout 0.1'"]
  losses = dataclasses.replace(study, score=Score("test/loss", better="smaller"))
  of_losses = [row | {"test/loss": "0.5"} for row in rows]
  assert said(losses, of_losses) == ["the score of 'dropout 0.0', 'dropout 0.1'"]
  shorter = dataclasses.replace(study.cells[1].stage, settings=stub.STEPS | {"batch_size": 32})
  cells = study.cells[0], dataclasses.replace(study.cells[1], stage=shorter)
  assert said(dataclasses.replace(study, cells=cells), rows) == ["settings of 'dropout 0.1'"]
  changed = [rows[0] | {"code": json.dumps(SETTINGS | {"models": "other"})}, *rows[1:]]
  assert said(study, changed) == ["code of models"]
  without = [{key: x for key, x in row.items() if key != "code"} for row in rows]
  assert said(study, without) == ["code not recorded"]
  first = study.cells[0]
  monkeypatch.setattr(stale, "kinds", lambda cell: {"mae" if cell is first else "classification"})
  of_mae = json.dumps(SETTINGS | {"objective": "sum of mae.py sum of masked_patches"})
  mixed = [row | ({"code": of_mae} if row["cell"] == first.label else {}) for row in rows]
  assert said(study, mixed) == []


def test_stale_studies_are_listed_and_marked(tmp_path, monkeypatch, capsys):
  found = {"head": ["code of models"], "axial": ["no numbers"]}
  monkeypatch.setattr(stale, "stale", lambda scale: found)
  page = tmp_path / "results.md"
  link = "([{0}](images/studies/{0}.csv){1})"
  page.write_text(link.format("head", "") + link.format("vtab", "†") + "[x](masked.csv)")
  with pytest.raises(SystemExit, match="2"):
    tool.main(["all", f"--mark={page}"])
  assert "--mark is for --stale" in capsys.readouterr().err
  tool.main(["--stale", f"--mark={page}"])
  assert page.read_text() == link.format("head", "†") + link.format("vtab", "") + "[x](masked.csv)"
  lines = capsys.readouterr().out.splitlines()
  assert [line.split()[0] for line in lines] == ["study", "head", "axial"]


def test_every_study_is_done_the_longest_first(monkeypatch, capsys):
  seconds = {"a": 1.0, "b": 3.0, "new": float("inf")}
  called = []

  def conduct(study, folder, args, words, **options):
    called.append((folder, words))
    if folder.startswith("study-b"):
      raise RunError("It failed.")

  monkeypatch.setattr(stale, "names", lambda scale: [*seconds])
  monkeypatch.setattr(stale, "seconds", seconds.get)
  monkeypatch.setattr(loading, "load", lambda *_: stub.study(0.0))
  monkeypatch.setattr(command, "conduct", conduct)
  with pytest.raises(SystemExit, match="1"):
    tool.main(["all", "--jobs=2"])
  assert [folder for folder, _ in called] == [f"study-{name}-small" for name in ("new", "b", "a")]
  assert called[0][1] == [
    *("vit-jax", "study", "--study=configs/studies/new.py", "--scale=small"),
  ]
  assert "1 of 3 studies failed: b: It failed." in capsys.readouterr().err
  with pytest.raises(SystemExit, match="2"):
    tool.main(["all", "--only=x"])
  with pytest.raises(SystemExit, match="2"):
    tool.main([])


def test_a_signal_stops_them_all(monkeypatch):
  def conduct(*_, **__):
    raise Stopped("stopped")

  monkeypatch.setattr(stale, "names", lambda scale: ["a", "b"])
  monkeypatch.setattr(loading, "load", lambda *_: stub.study(0.0))
  monkeypatch.setattr(command, "conduct", conduct)
  with pytest.raises(SystemExit, match="75"):
    tool.main(["all"])


def test_the_seconds_of_a_study_are_those_of_its_runs(tmp_path, monkeypatch):
  monkeypatch.setattr(stale, "NUMBERS", tmp_path)
  table = "cell,run,seconds\nnear,one,10.5\nprobe,one,10.5\nnear,two,4.0\n"
  (tmp_path / "study.csv").write_text(table)
  assert stale.seconds("study") == 14.5
  assert stale.seconds("new") == float("inf")


def test_all_studies_are_found(tmp_path, monkeypatch):
  assert {"head", "vtab"} <= {*stale.names("small")}
  assert 0 < stale.seconds("head") < float("inf")
  monkeypatch.chdir(tmp_path)
  with pytest.raises(ConfigError, match="start in the folder of the repository"):
    stale.names("small")
