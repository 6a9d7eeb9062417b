"""The study of shapes: what each curve varies, and how far."""

import fractions
import math

import pytest

from tests import programs
from vit_jax.experiments.studies.loading import load

FILE = str(programs.ROOT / "configs" / "studies" / "shape.py")
SCALES = {"small": ((4, 64, 128, 7), 28, 16), "paper": ((8, 1024, 2048, 32), 224, 64)}
DIMENSIONS = ("depth", "width", "mlp_dim", "patch")


def curve(study, scaled):
  """The shapes of a curve, by the labels of its cells."""
  some = [cell for cell in study.cells if cell.factors["scaled"] == scaled]
  return {cell.label: tuple(cell.factors[key] for key in DIMENSIONS) for cell in some}


@pytest.mark.parametrize("scale", SCALES)
def test_a_curve_varies_its_dimension_both_ways(scale):
  study, (base, _, head) = load(FILE, scale), SCALES[scale]
  for place, dimension in enumerate(DIMENSIONS):
    shapes = curve(study, dimension).values()
    for shape in shapes:
      assert shape[:place] + shape[place + 1 :] == base[:place] + base[place + 1 :]
    values = [shape[place] for shape in shapes]
    assert len(set(values)) == len(values)
    assert sum(value < base[place] for value in values) >= 2 <= sum(v > base[place] for v in values)
  for cell in study.cells:
    settings = cell.stage.settings
    assert settings["model.width"] == head * settings["model.heads"]
    assert {key: settings[f"model.{key}"] for key in DIMENSIONS}.items() <= cell.factors.items()
  if scale == "paper":
    assert max(shape[0] for shape in curve(study, "depth").values()) == 64


@pytest.mark.parametrize("scale", SCALES)
def test_all_dimensions_are_scaled_by_one_factor(scale):
  study, (base, side, _) = load(FILE, scale), SCALES[scale]
  shapes = curve(study, "all")
  assert len(shapes) == 5
  tiling = [patch for patch in range(1, side + 1) if side % patch == 0]
  for label, shape in shapes.items():
    factor = fractions.Fraction(label.removeprefix("all x "))
    assert shape[:3] == tuple(size * factor for size in base[:3])
    assert shape[3] == min(tiling, key=lambda p, f=factor: abs(math.log(p * f / base[3])))
