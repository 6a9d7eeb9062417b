"""A run that an earlier release began goes on, and means the same.

tests/fixtures/runs has a run of 6 steps as 0.2.0 left it that was killed after the save of step 4.
"""

import json
import pathlib
import tarfile

import pytest

from tests import programs
from vit_jax import weights
from vit_jax.storage import metrics_log

RUN = pathlib.Path(__file__).parents[1] / "fixtures/runs/digits_0.2.0.tar.gz"
SETTINGS = {  # starts.jsonl of the run has the whole command
  "duration.steps": 6,
  "model.width": 8,
  "model.mlp_dim": 16,
  "model.dropout": 0.1,
  "optimizer.ema": 0.9,
  "log_every.steps": 3,
  "checkpoint.every.steps": 4,
}
# What 0.2.0 wrote after step 6; the mean is of steps 4 to 6, of which one lies before the kill.
LOSSES = {"loss": 2.3000341256459556, "test/loss": 2.302045467164781}


def test_a_run_of_0_2_0_goes_on_as_it_would_have_there(tmp_path):
  with tarfile.open(RUN) as packed:
    packed.extractall(tmp_path, filter="data")
  workdir = tmp_path / "run"
  model = weights.read(workdir).card.model
  assert (model.family, model.width, model.norm_place) == ("vit", 8, "before")
  flags = [f"--config.{key}={value}" for key, value in SETTINGS.items()]
  result = programs.run(programs.digits(workdir, *flags))
  assert result.returncode == 0, result.stderr
  assert "resuming after step 4" in result.stdout
  *_, start = map(json.loads, (workdir / "starts.jsonl").read_text().splitlines())
  changed = [line for line in start["changed"] if line.startswith("config.")]
  assert changed == ["config.model.attention: 'xla' -> 'heads_first'"]  # the devices decide
  after = {key: x for line in metrics_log.read_lines(workdir)[1:] for key, x in line.items()}
  assert {key: after[key] for key in LOSSES} == pytest.approx(LOSSES, rel=1e-5)
