"""Curves of runs, however short the run is."""

import io
import json

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from vit_jax.evaluation import catalogue, examples, results
from vit_jax.extras.plots import captions, charts, curves
from vit_jax.storage import metrics_log

TRAINED = [{"step": step, "loss": 1 / step, "learning_rate": 0.1 * step} for step in (1, 2, 3)]
SCORED = [{"step": 3, "val/top1": 0.5, "val/loss": 2.0}]


@pytest.fixture
def figures(monkeypatch):
  """The figures that are drawn, in place of their files."""
  found = []
  monkeypatch.setattr(charts, "save", lambda figure, path: found.append(figure))
  return found


def drawn(folder, lines):
  """For each of the three plots, from the top, whether it has coloured lines."""
  (folder / metrics_log.METRICS).write_text("".join(json.dumps(line) + "\n" for line in lines))
  curves.curves(folder, catalogue.curve)
  with Image.open(folder / curves.CURVES) as image:
    pixels = np.asarray(image.convert("RGB")).astype(int)
  coloured = np.ptp(pixels, axis=2) > 50
  thirds = np.array_split(coloured, 3)
  return [bool(part[len(part) // 4 : -len(part) // 4].any()) for part in thirds]


@pytest.mark.parametrize(
  ("lines", "expected"),
  [
    ([], [False, False, False]),
    (SCORED, [True, True, False]),  # it ended before it logged anything
    (TRAINED, [True, False, True]),
    (TRAINED + SCORED, [True, True, True]),
  ],
)
def test_what_there_is_is_drawn(tmp_path, lines, expected):
  assert drawn(tmp_path, lines) == expected


def test_a_constant_top5_leaves_the_scale_to_the_others():
  axes = Figure().subplots()
  curves._accuracy(axes, "test/top1", [(1, 0.8), (2, 0.9)])
  curves._accuracy(axes, "test/top5", [(1, 0.999), (2, 1.0)])
  curves._accuracy(axes, "other/top5", [(1, 0.5), (2, 0.9)])
  assert [len(line.get_xdata()) for line in axes.lines] == [2, 0, 2]
  assert axes.lines[1].get_label() == "test top-5: 100.0%, not drawn"


@pytest.mark.parametrize("low", [0.002, 0.93, 2.1])
@pytest.mark.parametrize("ratio", [1.01, 1.6, 2.3, 9, 11, 299, 301, 1e6])
def test_a_logarithmic_axis_has_numbers(low, ratio):
  axes = Figure().subplots()
  axes.set(yscale="log", ylim=(low, low * ratio))
  charts.round_log_ticks(axes.yaxis)
  marked = axes.yaxis.get_majorticklocs()
  within = marked[(marked >= low) & (marked <= low * ratio)]
  assert 2 <= len(within) <= 8
  assert len(set(axes.yaxis.get_major_formatter().format_ticks(within))) == len(within)


def test_the_legend_covers_nothing():
  figure = Figure(figsize=(4, 3), layout="constrained")
  axes = figure.subplots()
  for i in range(7):
    axes.plot([0, 1], [0, i], label=f"line number {i}")
  charts.legend_above(axes)
  figure.savefig(io.BytesIO())
  box = axes.get_legend().get_window_extent()
  assert box.y0 >= axes.bbox.y1
  assert (box.x1, box.y1) <= (figure.bbox.x1, figure.bbox.y1)


def test_a_run_keeps_its_colour_where_it_is_alone():
  line = lambda group: charts.Series("", np.arange(2), np.ones(2), group)
  colours = lambda *groups: [each["color"] for each in charts.styles([*map(line, groups)])]
  assert colours(0, 1, 1) == ["C0", "C1", "C1"]
  assert colours(1) == ["C1"]
  assert colours(None, None) == ["C0", "C1"]


@pytest.mark.parametrize(("count", "more"), [(24, ""), (40, "and 16 more")])
def test_the_legend_of_many_lines(count, more):
  lines = [charts.Series(f"line {i}", np.arange(2), np.ones(2), i) for i in range(count)]
  svg = charts.lines([charts.Panel(lines, "value")]).decode()
  assert svg.count("line ") == 24
  assert ("more" in svg) == bool(more)
  assert more in svg


@pytest.mark.parametrize(("classes", "counted"), [(3, True), (curves._MAX_COUNTS + 1, False)])
def test_the_confusion_matrix_holds_counts_below_its_caption(figures, tmp_path, classes, counted):
  matrix = np.arange(classes**2).reshape(classes, classes)
  said = "test: tfds:fashion_mnist test, step 488, moving average of the parameters"
  curves.confusion(tmp_path, matrix, [f"c{i}" for i in range(classes)], said)
  texts = [text.get_text() for text in figures[0].axes[0].texts]
  assert texts == ([str(i) for i in range(classes**2)] if counted else [])
  assert figures[0].get_suptitle().replace("\n", " ") == said


@pytest.mark.parametrize("classes", [2, 20])
def test_the_confusion_matrix_has_room_beside_long_names(figures, tmp_path, classes):
  names = [f"a flower, 'red' & blue, {i}" for i in range(classes)]
  curves.confusion(tmp_path, np.eye(classes), names, "own: " * 20)
  figures[0].savefig(io.BytesIO())
  matrix, drawn = figures[0].axes[0].bbox, figures[0].get_tightbbox()
  assert matrix.width / figures[0].dpi > 1 + 0.25 * classes  # inches
  width, height = figures[0].get_size_inches()
  assert drawn.width <= width
  assert drawn.height <= height


def test_the_confusion_matrices_that_an_evaluation_left_are_drawn(tmp_path):
  """A thousand classes too; one that is damaged is left out."""
  for number, count in enumerate((3, 1000, 2), 1):
    folder = tmp_path / f"evaluation/{number}/test"
    classes = np.arange(count)
    names = [f"$x$, {i}" for i in classes]
    results.write_predictions(folder, results.Details(names, classes, classes, np.ones(count), str))
  (folder / results.CONFUSION).write_text("label / prediction,a,b\na,1,x\nb,1,1\n")
  curves.confusions(tmp_path)
  drawn = sorted(tmp_path.glob("evaluation/*/test/confusion.png"))
  assert [path.parts[-3] for path in drawn] == ["1", "2"]
  assert all(path.read_bytes().startswith(b"\x89PNG") for path in drawn)
  assert drawn[1].stat().st_size < 10**6


def test_long_names_of_neighbours_stay_in_their_picture():
  """They would cover the next picture, and push the headings out of the figure."""
  images = np.zeros((24, 48, 48, 3), np.uint8)
  figure = captions.picture_table([images] * 6, [["name of many letters" + " x" * 9] * 6] * 24)
  figure.draw_without_rendering()
  axes = figure.axes[0]
  (first, second, *_), width = axes.texts, figure.bbox.width
  assert first.get_window_extent().x1 < second.get_window_extent().x0
  assert all(0 < head.get_window_extent().x0 < width for head in axes.get_xticklabels())
  assert axes.get_xticklabels()[0].get_window_extent().y1 <= figure.bbox.height


def test_a_neighbour_of_another_class_is_marked():
  images = np.zeros((2, 8, 8, 3), np.uint8)
  figure = captions.picture_table([images, images], [["cat", "cat"], ["dog", "cat"]])
  texts = [(t.get_text(), t.get_bbox_patch().get_facecolor()[0] > 0) for t in figure.axes[0].texts]
  assert texts == [("cat", False), ("cat", False), ("dog", False), ("cat", True)]
  assert not captions.picture_table([images, images], []).axes[0].texts


@pytest.mark.parametrize("channels", [1, 2, 3, 5])
def test_images_of_any_channels_are_drawn_as_rgb(channels):
  images = np.random.default_rng(0).integers(0, 256, (2, 96, 96, channels)).astype(np.uint8)
  expected = images[..., :3] if channels > 2 else images[..., [0, 0, 0]]
  drawn = captions.picture_table([images, images], [])
  drawn.draw_without_rendering()
  inside = slice(examples.GAP, examples.GAP + 96)
  np.testing.assert_array_equal(drawn.axes[0].images[0].get_array()[inside, inside], expected[0])
