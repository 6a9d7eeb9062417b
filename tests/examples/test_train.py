"""The notebook on training, with a smaller model and fewer steps."""

import pytest
from matplotlib import pyplot

from tests.examples import cells

FEWER = {
  '"duration.steps": 600, "evaluate_every.steps": 150': '"duration.steps": 4, "model.depth": 1, '
  '"model.width": 16, "model.mlp_dim": 32, "model.heads": 2',
  '"report": False}\nconfig': '"report": False, "schedule.warmup.steps": 1}\nconfig',
  '"duration.steps": 20': '"duration.steps": 2',
}


@pytest.fixture(scope="module")
def notebook():
  return cells.read("train.ipynb")


@pytest.mark.usefixtures("one_device")
def test_every_cell_runs(notebook, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  for cell in cells.code(notebook):
    text = "".join(cell["source"])
    for given, fewer in FEWER.items():
      text = text.replace(given, fewer)
    cell["source"] = [text]
  names = cells.run(notebook)
  pyplot.close(names["figure"])
  assert names["run"].metrics["step"] == 4
  assert names["tuned"].metrics["step"] == 2


def test_it_shows_what_it_gave(notebook):
  cells.check_outputs(notebook)
