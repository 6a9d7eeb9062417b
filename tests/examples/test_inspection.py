"""The notebook, cell by cell, as a stranger would run it beside a file of weights."""

import json
import pathlib

import numpy as np
import pytest
from matplotlib.figure import Figure

from vit_jax import weights

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def notebook():
  return json.loads((ROOT / "examples" / "inspection.ipynb").read_text())


def test_every_cell_runs(notebook, tiny_run, tmp_path, monkeypatch):
  """Each begins where the one before ended; cells are plain Python, without commands of IPython."""
  weights.write(tmp_path / "digits.npz", weights.read(tiny_run))
  monkeypatch.chdir(tmp_path)
  names = {}
  for cell in notebook["cells"]:
    if cell["cell_type"] == "code":
      exec(compile("".join(cell["source"]), cell["id"], "exec"), names)
  assert names["maps"].shape == (8, *names["grid"])
  assert np.isfinite(names["distances"]).all()
  assert isinstance(names["inside"].attention_distances(names["distances"]), Figure)


def test_it_is_a_notebook_without_results(notebook):
  """Results would change with every run; GitHub shows it as format 4."""
  assert notebook["nbformat"] == 4
  for cell in notebook["cells"]:
    assert cell["cell_type"] in ("code", "markdown")
    assert not cell.get("outputs")
    assert not cell.get("execution_count")
