"""Checkpoints that a run removes while another process reads them are not called damaged."""

import logging
import pathlib
import shutil

import pytest

from tests.storage.states import opened, saved, saving, watched
from vit_jax import weights
from vit_jax.storage import checkpoint

META = "/meta/metadata"  # which is summed, and later read for the names and shapes of arrays
MOMENTS = [
  ("/manifest.json", 1),
  ("/state/manifest.ocdbt", 1),
  (META, 1),
  (META, 2),
  (META, 3),
  (META, 4),
]


@pytest.mark.parametrize("moment", MOMENTS)
def test_the_newest_one_that_is_left_is_read(tmp_path, caplog, moment):
  saved(tmp_path, 7)
  checkpoints = opened(tmp_path, keep_last=1)
  with (
    caplog.at_level(logging.WARNING),
    watched(before=lambda: saving(checkpoints, 8), opening=moment),
  ):
    found = weights.read(tmp_path, average=False)
  assert checkpoint.available(tmp_path) == [8]
  assert found.params["head"]["bias"].shape == (3,)
  assert "DAMAGED" not in caplog.text


@pytest.mark.parametrize("moment", MOMENTS)
def test_one_that_was_named_is_not_there(tmp_path, moment):
  saved(tmp_path, 7, 8)
  remove = lambda: shutil.rmtree(tmp_path / "checkpoints/7")
  said = pytest.raises(checkpoint.CheckpointError, match=r"no checkpoint of step 7: .* \[8\]")
  with watched(before=remove, opening=moment), said:
    weights.read(tmp_path, step=7)


def test_old_ones_vanish_whole(tmp_path, monkeypatch):
  """So that nobody meets a part of one, even if the run is killed meanwhile."""
  checkpoints, seen = opened(tmp_path, keep_last=1), []
  monkeypatch.setattr("shutil.rmtree", lambda path, **_: seen.append(pathlib.Path(path).name))
  for step in (7, 8, 9):
    saving(checkpoints, step)
    assert checkpoint.available(tmp_path) == [step]
  assert set(seen) == {"old.orbax-checkpoint-tmp"}
