"""The notebook on prediction, as a stranger would run it after the demo."""

import shutil

import pytest
from matplotlib import pyplot

from tests.examples import cells


@pytest.fixture(scope="module")
def notebook():
  return cells.read("predict.ipynb")


def test_every_cell_runs(notebook, tiny_run, tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(tmp_path)
  shutil.copytree(tiny_run, "workdirs/vit_digits")
  names = cells.run(notebook)
  pyplot.close(names["figure"])
  assert len(names["predictions"]) == 8
  assert capsys.readouterr().out.count("is taken for") == 8
  assert names["features"].shape == (100, 8)


def test_it_shows_what_it_gave(notebook):
  """Each cell was run, in order, and has its result."""
  cells.check_outputs(notebook)
