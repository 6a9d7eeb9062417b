"""The figure of a study whose values have odd names, no order, or are many."""

import itertools

import pytest
from matplotlib.axes import Axes

from vit_jax.extras.experiments.studies import Drawing, figure


def row(**columns):
  """A row of results.csv."""
  return dict(cell="a", seed="0", paper="", score="0.5") | columns


@pytest.fixture
def seen(monkeypatch):
  """What a figure shows: places and kind of each line, names of curves, kinds of axes."""
  found = dict(across=[], lines=[], names=[], axes=[])
  errorbar, legend = Axes.errorbar, Axes.legend

  def drawn(axes, x, *points, **options):
    found["across"].append(x)
    found["lines"].append(options["linestyle"])
    return errorbar(axes, x, *points, **options)

  def named(axes, *parts, **options):
    box = legend(axes, *parts, **options)
    found["names"] += [text.get_text() for text in box.get_texts()]
    return box

  monkeypatch.setattr(Axes, "errorbar", drawn)
  monkeypatch.setattr(Axes, "legend", named)
  monkeypatch.setattr(Axes, "set_xscale", lambda axes, kind: found["axes"].append(kind))
  return found


@pytest.mark.parametrize(
  ("values", "places", "axes"),
  [
    ("0 1 2", [0, 1, 2], []),
    ("a b c", [0, 1, 2], []),
    ("1 inf", [0, 1], []),
    ("1 2", [1, 2], ["log"]),
    ("1  2", [1, 2], ["log"]),  # the second is not known
  ],
)
def test_a_logarithmic_axis_loses_no_cell(tmp_path, seen, values, places, axes):
  rows = [row(cell=x, x=x) for x in values.split(" ")]
  figure.draw(rows, Drawing(x="x", log=True), [tmp_path / "figure.svg"])
  assert (seen["across"], seen["axes"]) == ([places], axes)


def test_values_without_order_keep_to_their_places(tmp_path, seen):
  """Many curves stand side by side, nearer to their own value than to the next one."""
  rows = [row(cell=f"{x}{by}", x=x, by=f"{by}") for x in "ab" for by in range(30)]
  figure.draw(rows, Drawing(x="x", by="by"), [tmp_path / "figure.svg"])
  first, second = zip(*seen["across"], strict=True)
  assert -0.5 < min(first) < max(first) < 0.5 < min(second) < max(second) < 1.5
  assert len(set(first)) == 30


@pytest.mark.parametrize(
  "span", [(8e-9, 1.1e-5), (3.9e-7, 8.3e-6), (300, 27_000), (50, 4262), (1, 1.5)]
)
def test_labels_of_a_logarithmic_axis_do_not_run_into_one_another(tmp_path, monkeypatch, span):
  drawn = []
  monkeypatch.setattr(figure.charts, "save", lambda one, path: drawn.append(one))
  rows = [row(cell=f"{x}", x=f"{x}") for x in span]
  figure.draw(rows, Drawing(x="x", log=True), [tmp_path / "figure.svg"])
  (axes,) = drawn[0].axes
  drawn[0].canvas.draw()
  shown = [one for one in axes.get_xticklabels(which="both") if one.get_text()]
  boxes = sorted((one.get_window_extent() for one in shown), key=lambda box: box.x0)
  assert all(a.x1 < b.x0 for a, b in itertools.pairwise(boxes))


def test_every_curve_is_named(tmp_path, seen):
  """Matplotlib leaves out names that are empty or begin with _, and $ begins a formula."""
  names = ["_hidden", r"$\frac$", "", "x" * 300]
  rows = [row(cell=f"{x}{by}", x=f"{x}", by=by) for by in names for x in (1, 2)]
  figure.draw(rows, Drawing(x="x", by="by"), [tmp_path / "figure.svg"])
  assert seen["names"] == ["_hidden", r"\$\frac\$", "", f"{'x' * 20}...{'x' * 17}"]
  assert seen["lines"] == ["-"] * 4


def test_no_line_joins_points_above_each_other(tmp_path, seen):
  rows = [row(cell=f"{x}{width}", x=x, width=width) for x in "12" for width in "34"]
  figure.draw(rows, Drawing(x="x"), [tmp_path / "figure.svg"])
  figure.draw(rows, Drawing(x="x", by="width"), [tmp_path / "figure.svg"])
  assert seen["lines"] == ["none", "-", "-"]


def test_each_cell_has_a_curve_over_the_epochs(tmp_path, seen):
  rows = [row(cell=cell, epoch=epoch) for cell in "ab" for epoch in "12"]
  figure.draw(rows, Drawing(x="epoch"), [tmp_path / "figure.svg"])
  assert (seen["names"], seen["lines"]) == (["a", "b"], ["-", "-"])
