"""The notebook on what a model has learned, as a stranger would run it beside a file of weights."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from tests.examples import cells
from vit_jax import weights


@pytest.fixture(scope="module")
def notebook():
  return cells.read("inspection.ipynb")


def test_every_cell_runs(notebook, tiny_run, tmp_path, monkeypatch):
  weights.write(tmp_path / "digits.npz", weights.read(tiny_run))
  monkeypatch.chdir(tmp_path)
  names = cells.run(notebook)
  assert names["maps"].shape == (8, *names["grid"])
  assert np.isfinite(names["distances"]).all()
  assert isinstance(names["inside"].attention_distances(names["distances"]), Figure)


def test_it_is_a_notebook_without_results(notebook):
  """Its many pictures would change with every run."""
  for cell in cells.code(notebook):
    assert not cell["outputs"]
    assert not cell["execution_count"]
