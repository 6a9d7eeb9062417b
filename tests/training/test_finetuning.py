"""Fine-tunes a checkpoint, pre-trained just before, at twice the resolution (Section 3.2)."""

import pytest

from tests import programs
from vit_jax.storage import metrics_log

# As in configs/finetune.py: SGD with momentum, cosine decay, clipping at 1, no weight decay.
FINE_TUNING = [
  "--config.data.image_size=32",
  "--config.optimizer.kind=sgd",
  "--config.optimizer.weight_decay=0",
  "--config.optimizer.ema=0",
  "--config.duration.steps=40",
  "--config.schedule.warmup.steps=0",
  "--config.schedule.learning_rate=0.03",
]
MODEL = ["--config.model.depth=2", "--config.model.width=32", "--config.model.mlp_dim=64"]


def accuracy(workdir, *overrides):
  """Top-1 on the test images at the end of a run."""
  result = programs.run(programs.digits(workdir, *MODEL, *overrides))
  assert result.returncode == 0, result.stderr
  return metrics_log.read(workdir)[-1]["test/top1"], result.stdout


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
  workdir = tmp_path_factory.mktemp("pretrained")
  schedule = ["--config.duration.steps=250", "--config.schedule.learning_rate=2e-3"]
  accuracy(workdir, "--config.data.image_size=16", *schedule)
  return workdir


def test_at_twice_the_resolution_it_beats_zero_steps(pretrained, tmp_path):
  start = f"--config.init_from={pretrained}"
  tuned, said = accuracy(tmp_path / "tuned", *FINE_TUNING, start, "--config.new_head=True")
  assert "4 x 4 -> 8 x 8 patches" in said
  assert "new      head/kernel" in said
  nothing = ["--config.schedule.learning_rate=0", "--config.duration.steps=1"]
  untouched, _ = accuracy(tmp_path / "untouched", *FINE_TUNING, start, *nothing)
  assert tuned > untouched
