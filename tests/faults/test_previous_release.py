"""A run that release 0.1.0 began is taken up, evaluated and read by today's program.

tests/fixtures/release_0_1_0 is what that release left after step 5 of the command below; its
metrics.jsonl goes on to step 10.
"""

import os
import pathlib
import shutil

import numpy as np
import pytest

from tests import programs
from vit_jax import weights
from vit_jax.storage import checkpoint, metrics_log
from vit_jax.storage.tree import flatten

FIXTURE = pathlib.Path(__file__).parents[1] / "fixtures" / "release_0_1_0"
TINY = [
  "--config.model.width=8",
  "--config.model.mlp_dim=16",
  "--config.duration.steps=10",
  "--config.log_every.steps=1",
]


@pytest.fixture
def workdir(tmp_path):
  return shutil.copytree(FIXTURE, tmp_path / "run")


def absolute_sum(params):
  return sum(np.abs(leaf.astype(np.float64)).sum() for leaf in flatten(params).values())


def test_its_parameters_are_what_they_were():
  folder = checkpoint.find(FIXTURE)
  for ema, total in ((False, 219.1566174187842), (True, 218.70690145382747)):
    assert absolute_sum(checkpoint.load_params(folder, ema=ema)) == pytest.approx(total, rel=1e-12)
  assert absolute_sum(weights.load(FIXTURE)) == pytest.approx(218.70690145382747, rel=1e-12)


def test_it_is_resumed_as_that_release_went_on(workdir):
  result = programs.run(programs.digits(workdir, *TINY))
  assert result.returncode == 0, result.stderr
  assert "resuming after step 5" in result.stdout
  assert "None ->" not in result.stdout  # of settings that that release did not have
  assert "drawn as before release 0.2.0 (config.data.sampling=grain)" in result.stdout
  assert "config.data.sampling:" not in result.stdout  # it is no change
  then, now = ([x for x in metrics_log.read(w) if "loss" in x] for w in (FIXTURE, workdir))
  assert [line["step"] for line in now] == list(range(1, 11))
  for a, b in zip(then, now, strict=True):
    for key in ("loss", "grad_norm", "param_norm", "update_norm", "learning_rate"):
      assert b[key] == pytest.approx(a[key], rel=1e-4, abs=1e-7), (key, a["step"])


def test_it_is_evaluated_by_a_relative_path(workdir):
  relative = os.path.relpath(workdir, programs.ROOT)
  result = programs.run(programs.digits(relative, *TINY, "--mode=evaluate"))
  assert result.returncode == 0, result.stderr
  assert "step 5  test: top-1" in result.stdout


def test_it_is_small():
  assert sum(path.stat().st_size for path in FIXTURE.rglob("*") if path.is_file()) < 200_000
