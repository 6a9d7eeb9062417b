"""Runs that earlier releases began are taken up, evaluated and read by today's program.

tests/fixtures/release_0_1_0 is what that release left after step 5 of the command below; its
metrics.jsonl goes on to step 10. tests/fixtures/before_packages is the same of the last commit
before the modules were moved into packages, of a run with an average, dropout, MixUp, accumulation,
a probe and neighbours.
"""

import os
import pathlib
import shutil

import numpy as np
import pytest

from tests import programs
from vit_jax import weights
from vit_jax.config import recorded
from vit_jax.storage import checkpoint, metrics_log
from vit_jax.storage.tree import flatten

BEFORE_PACKAGES = pathlib.Path(__file__).parents[1] / "fixtures" / "before_packages"
FIXTURE = pathlib.Path(__file__).parents[1] / "fixtures" / "release_0_1_0"
FIGURES = {"loss", "grad_norm", "param_norm", "update_norm", "learning_rate", "test/loss"}
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


def test_a_run_from_before_the_packages_goes_on_as_it_went_on(tmp_path):
  workdir = shutil.copytree(BEFORE_PACKAGES, tmp_path / "run")
  recipe = f"{recorded.__file__}:{BEFORE_PACKAGES}"
  result = programs.run([*programs.MAIN, f"--config={recipe}", f"--workdir={workdir}"])
  assert result.returncode == 0, result.stderr
  assert "resuming after step 5" in result.stdout
  assert "Other settings" not in result.stdout
  then, now = (metrics_log.read(folder) for folder in (BEFORE_PACKAGES, workdir))
  assert [line["step"] for line in now] == [line["step"] for line in then]
  for a, b in zip(then, now, strict=True):
    assert a.keys() == b.keys()
    for key in FIGURES & a.keys():
      assert b[key] == pytest.approx(a[key], rel=1e-4, abs=1e-7), (key, a["step"])
