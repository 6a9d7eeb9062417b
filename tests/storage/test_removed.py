"""Checkpoints that a run removes while another process reads them are not called damaged."""

import logging
import pathlib
import shutil

import pytest

from tests.storage.states import META, at_step, opened, saved
from vit_jax import weights
from vit_jax.storage import checkpoint, manifest

# What a reader calls, in this order; the checkpoint is removed just before.
MOMENTS = [(manifest, "_sum"), (checkpoint, "read_arrays"), (checkpoint, "load_params")]


def before(monkeypatch, module, name, act):
  """Calls `act` once, before the first call of a function."""
  function, acts = getattr(module, name), [act]

  def late(*args, **kwargs):
    if acts:
      acts.pop()()
    return function(*args, **kwargs)

  monkeypatch.setattr(module, name, late)


@pytest.mark.parametrize(("module", "name"), MOMENTS)
def test_the_newest_one_that_is_left_is_read(tmp_path, monkeypatch, caplog, module, name):
  saved(tmp_path, 7)
  checkpoints = opened(tmp_path, keep_last=1)

  def save_another():
    checkpoints.save(at_step(8), META)
    checkpoints.wait()

  before(monkeypatch, module, name, save_another)
  with caplog.at_level(logging.WARNING):
    found = weights.read(tmp_path, average=False)
  checkpoints.close()
  assert found.params["head"]["bias"].shape == (3,)
  assert "DAMAGED" not in caplog.text


@pytest.mark.parametrize(("module", "name"), MOMENTS)
def test_one_that_was_named_is_not_there(tmp_path, monkeypatch, module, name):
  saved(tmp_path, 7, 8)
  before(monkeypatch, module, name, lambda: shutil.rmtree(tmp_path / "checkpoints/7"))
  with pytest.raises(checkpoint.CheckpointError, match=r"no checkpoint of step 7: .* \[8\]"):
    weights.read(tmp_path, step=7)


def test_old_ones_vanish_whole(tmp_path, monkeypatch):
  """So that nobody meets a part of one, even if the run is killed meanwhile."""
  checkpoints, seen = opened(tmp_path, keep_last=1), []
  monkeypatch.setattr("shutil.rmtree", lambda path, **_: seen.append(pathlib.Path(path).name))
  for step in (7, 8, 9):
    checkpoints.save(at_step(step), META)
    checkpoints.wait()
    assert checkpoint.available(tmp_path) == [step]
  checkpoints.close()
  assert set(seen) == {"old.orbax-checkpoint-tmp"}
