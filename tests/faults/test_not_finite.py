"""NaN at one step: the update is left out whole, in parameters, optimizer and average alike."""

import jax
import numpy as np

from tests import programs
from tests.faults import faulty
from vit_jax.config import from_dict
from vit_jax.storage import checkpoint
from vit_jax.training import run as runs

EACH_STEP = [
  "--config.duration.steps=8",
  "--config.checkpoint.every.steps=1",
  "--config.checkpoint.keep_last=9",
]


def state_after(workdir, step):
  """The whole state of a checkpoint."""
  folder = checkpoint.find(workdir, step)
  config = from_dict(checkpoint.read_meta(folder)["config"])
  abstract = runs.make(config, runs.open_data(config), jax.devices()[:1]).abstract
  return jax.device_get(checkpoint.load(folder, abstract))


def test_skipped_it_leaves_no_trace(tmp_path):
  result = faulty.run("not_finite:5", tmp_path, *EACH_STEP, "--config.non_finite.action=skip")
  assert result.returncode == 0, result.stderr
  assert "Not finite at step 5: loss nan" in result.stdout
  before, poisoned, after = (state_after(tmp_path, step) for step in (4, 5, 6))
  assert [int(state.skipped) for state in (before, poisoned, after)] == [0, 1, 0]
  kept = lambda state: jax.tree.leaves((state.params, state.optimizer, state.ema))
  for old, new in zip(kept(before), kept(poisoned), strict=True):
    np.testing.assert_array_equal(old, new)
  assert any((old != new).any() for old, new in zip(kept(poisoned), kept(after), strict=True))
  assert all(np.isfinite(leaf).all() for leaf in kept(state_after(tmp_path, 8)))


def test_it_stops_the_run_before_anything_is_saved_of_it(tmp_path):
  result = faulty.run("not_finite:5", tmp_path, *EACH_STEP)
  assert result.returncode == 1
  said = programs.message(result)
  assert "Not finite at step 5: loss nan" in said
  assert f"Last good checkpoint: {tmp_path}/checkpoints/4" in said
  assert checkpoint.available(tmp_path) == [1, 2, 3, 4]
  state = state_after(tmp_path, 4)
  leaves = jax.tree.leaves((state.params, state.optimizer, state.ema))
  assert all(np.isfinite(leaf).all() for leaf in leaves)
