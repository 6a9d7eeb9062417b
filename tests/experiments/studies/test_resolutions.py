"""The study of resolutions: pairs of cells differ in their position embeddings alone."""

import pytest

from tests import programs
from vit_jax.experiments.studies.loading import load

FILE = str(programs.ROOT / "configs" / "studies" / "resolution.py")


@pytest.mark.parametrize(("scale", "sides"), [("small", (16, 24, 32)), ("paper", (224, 336, 448))])
def test_positions_are_interpolated_or_new_and_nothing_else(scale, sides):
  study = load(FILE, scale)
  kept, new = (
    [cell.stage for cell in study.cells if cell.factors["positions"] == kind]
    for kind in ("interpolated", "new")
  )
  for one, other in zip(kept, new, strict=True):
    assert one.after == other.after
    assert one.choice == other.choice
    assert one.settings | {"new_positions": True} == other.settings
    assert not one.settings["new_positions"]
  assert tuple(stage.settings["data.image_size"] for stage in kept) == sides
  assert [side / sides[0] for side in sides] == [1, 1.5, 2]


def test_trials_score_images_that_no_run_before_them_has_seen():
  """At the paper's scale both runs are on ImageNet."""
  for cell in load(FILE, "paper").cells:
    held_out = cell.stage.choice.held_out
    before = cell.stage.after
    assert before.settings["data.train.split"] == held_out["data.train.split"] == "train[:99%]"
    assert held_out["evaluate.test.split"] == "train[99%:]"
