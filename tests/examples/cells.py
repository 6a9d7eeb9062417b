"""The cells of notebooks, which are plain Python, without commands of IPython."""

import json
import pathlib

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"


def read(name):
  """A notebook of format 4, which GitHub shows."""
  notebook = json.loads((EXAMPLES / name).read_text())
  assert notebook["nbformat"] == 4
  return notebook


def code(notebook):
  """The cells with code."""
  return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def run(notebook):
  """Runs all cells in order, in the current folder; each begins where the one before ended.

  Returns:
    The names that they define.
  """
  names = {}
  for cell in code(notebook):
    exec(compile("".join(cell["source"]), cell["id"], "exec"), names)
  return names


def check_outputs(notebook):
  """Checks that each cell was run, in order, and that none failed."""
  for number, cell in enumerate(code(notebook), start=1):
    assert cell["execution_count"] == number
    assert not [output for output in cell["outputs"] if output["output_type"] == "error"]
