"""Pictures of what a model has learned: every value has its place, whatever the sizes are."""

import io

import numpy as np
import pytest

from vit_jax.data.crops import Box
from vit_jax.evaluation import examples
from vit_jax.extras.plots import captions, inside, overlay
from vit_jax.extras.plots.labels import label

BLACK = np.zeros((9, 9, 3), np.uint8)


@pytest.mark.parametrize("count", [1, 7, 9, 28])
def test_tiles_fill_rows_of_seven(count):
  drawn = np.linspace(0, 1, count * 12).reshape(count, 2, 2, 3)
  picture = inside.filters(drawn)
  columns = min(count, 7)
  side = examples.LEAST + 2 * examples.GAP
  assert picture.shape == (-(-count // 7) * side, columns * side, 3)
  row, column = divmod(count - 1, columns)
  corner = picture[row * side + examples.GAP, column * side + examples.GAP]
  np.testing.assert_allclose(corner, 255 * drawn[-1, 0, 0], atol=3)


def test_a_few_large_weights_leave_the_others_their_colours():
  weights = np.random.default_rng(0).uniform(-1, 1, (4, 8, 8, 3))
  outlying = weights.copy()
  outlying[0, 0, :4] = 50
  usual, drawn = (inside.filters(0.5 + 0.5 * each / 50) for each in (weights, outlying))
  same = drawn != 255
  assert np.abs(usual[same].astype(int) - drawn[same]).max() <= 8
  assert usual.std() > 50
  np.testing.assert_array_equal(inside.filters(np.full((1, 2, 2, 3), 0.5))[20, 20], 128)


def test_a_grid_of_grids():
  """In row i and column j the map of patch (i, j)."""
  values = np.arange(2 * 3 * 4 * 5.0).reshape(2, 3, 4, 5)
  picture = inside.grid_of_grids(values)
  assert picture.shape == (2 * 5 - 1, 3 * 6 - 1)
  assert np.isnan(picture).sum() == picture.size - values.size
  np.testing.assert_array_equal(picture[5:9, 12:17], values[1, 2])


@pytest.mark.parametrize("count", range(1, 65))
def test_maps_are_of_evenly_spaced_patches(count):
  """Of all patches of a small grid; of a large one from the first to the last."""
  shown = inside.spaced(count)
  if count <= 8:
    assert shown == list(range(count))
    return
  assert (len(shown), shown[0], shown[-1]) == (7, 0, count - 1)
  assert np.ptp(np.diff(shown)) <= 1


def test_a_large_grid_shows_the_maps_of_the_patches_that_its_marks_name():
  values = np.random.default_rng(0).uniform(-1, 1, (37, 5, 37, 5))
  drawn = inside.similarities({"stem": values}, "words")
  axes = drawn.axes[0]
  rows = [int(mark.get_text()) for mark in axes.get_yticklabels()]
  columns = [int(mark.get_text()) for mark in axes.get_xticklabels()]
  assert (rows, columns) == ([0, 6, 12, 18, 24, 30, 36], [0, 1, 2, 3, 4])
  assert inside.shown_in_words((37, 5)) == "7 x 5 of 37 x 5"
  assert inside.shown_in_words((7, 8)) == "7 x 8"
  picture = axes.images[0].get_array()
  for i, j in ((2, 4), (6, 0)):
    place = np.s_[i * 41 : i * 41 + 37, j * 9 : j * 9 + 5]
    np.testing.assert_array_equal(picture[place], values[rows[i], columns[j]])
    assert axes.get_yticks()[i] == i * 41 + 18
    assert axes.get_xticks()[j] == j * 9 + 2


@pytest.mark.parametrize(
  ("shape", "layout"), [((12, 27, 27), (4, 3)), ((5, 1, 7), (5, 1)), ((3, 9, 1), (1, 3))]
)
def test_maps_of_heads_fill_about_a_square(shape, layout):
  values = np.random.default_rng(0).random(shape)
  found = inside.arranged(values)
  assert found.shape == (*layout, *shape[1:])
  flat = found.reshape(-1, *shape[1:])
  np.testing.assert_array_equal(flat[: shape[0]], values)
  assert np.isnan(flat[shape[0] :]).all()


def test_patches_have_the_colour_of_their_features_within_the_box():
  colours = np.random.default_rng(0).random((2, 3, 3))
  image = np.full((30, 70, 3), 200, np.uint8)
  drawn = overlay.coloured(image, colours, Box(5, 5, 20, 60))
  wanted = np.round(255 * colours).repeat(10, axis=0).repeat(20, axis=1)
  np.testing.assert_array_equal(drawn[5:25, 5:65], wanted)
  drawn[5:25, 5:65] = round(200 * overlay.UNSEEN)
  assert (drawn == round(200 * overlay.UNSEEN)).all()


def test_the_overlay_is_bright_where_the_map_is_high():
  image = np.full((30, 60, 3), 100, np.uint8)
  drawn = overlay.overlay(image, np.array([[0.0, 0.0], [0.0, 0.2]]))
  assert drawn.shape == image.shape
  assert drawn[-1, -1].astype(int).sum() > drawn[0, 0].astype(int).sum() + 200
  np.testing.assert_array_equal(drawn[0, 0], drawn[0, -1])


def test_a_few_very_high_patches_leave_the_others_visible():
  """As in DINOv2, of whose 1,369 patches one gets 20 times the attention of the 27th."""
  image, usual = np.zeros((74, 74, 3), np.uint8), np.linspace(0, 0.05, 37 * 37).reshape(37, 37)
  outliers = usual.copy()
  outliers[0, :9] = 1.0
  plain, drawn = (overlay.overlay(image, each).astype(int) for each in (usual, outliers))
  assert np.abs(plain[4:] - drawn[4:]).max() <= 8  # of 255
  assert (drawn[0, :15] == drawn[-1, -1]).all()
  one = np.zeros((37, 37))
  one[5, 5] = 1
  assert overlay.overlay(image, one)[10, 10].sum() > 100


def test_what_the_model_does_not_see_is_dark():
  image = np.full((30, 60, 3), 200, np.uint8)
  drawn = overlay.overlay(image, np.ones((2, 2)), Box(0, 15, 30, 30))
  assert (drawn[:, :15] == round(200 * overlay.UNSEEN)).all()
  assert (drawn[:, 15:45] == drawn[0, 20]).all()


def test_a_map_of_zeros_and_an_image_of_one_pixel():
  drawn = overlay.pair(np.zeros((1, 1, 3), np.uint8), np.zeros((3, 3)))
  assert drawn.shape == (overlay.LEAST, 2 * overlay.LEAST + overlay.GAP, 3)


@pytest.mark.parametrize(
  "figure",
  [
    lambda: inside.attention_distances(np.array([[1.0, np.nan], [2.0, 3.0]])),
    lambda: inside.attention_distances(np.ones((2, 3, 4))),
    lambda: inside.similarities({"stem": np.ones((2, 2, 2, 2))}),
    lambda: inside.similarities({f"layer {i}": np.ones((3, 1, 7)) for i in range(5)}),
    lambda: captions.figure([BLACK] * 5, ["$x", "a\nb", "", "d", "e"]),
    lambda: inside.filter_figure(np.zeros((9, 2, 2, 3)), "$x"),
    lambda: captions.sheet([[("a", BLACK), ()], [(), ("b", BLACK)]], "$x"),
    lambda: captions.figure([np.zeros((900, 9, 3), np.uint8)], [label("$\\nothing{$")]),
  ],
)
def test_figures_are_drawn_without_a_warning(figure):
  for form in ("png", "svg"):
    figure().savefig(stream := io.BytesIO(), format=form, dpi=50)
    assert stream.getvalue()
