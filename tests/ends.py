"""Two runs compared bit by bit, and waiting for a moment of one that is under way."""

import time

import jax
import numpy as np

from vit_jax import checkpoint, writers
from vit_jax.monitor import CAUSES

TIMING = {
  "images_per_second",
  "step_seconds",
  "eta_seconds",
  "data/input_wait",
  "mfu",
  "goodput",
  *(f"time/{cause}" for cause in ("steps", *CAUSES, "idle")),
}


def final_state(workdir, step=40):
  """Every array of the last checkpoint, and what a run logs that is not time."""
  folder = checkpoint.find(workdir, step)
  params = checkpoint.load_params(folder, ema=False)
  average = checkpoint.load_params(folder, ema=True)
  lines = [{k: v for k, v in line.items() if k not in TIMING} for line in writers.read(workdir)]
  return params, average, lines


def assert_equal_ends(workdir, other, step=40):
  for a, b in zip(
    jax.tree.leaves(final_state(workdir, step)),
    jax.tree.leaves(final_state(other, step)),
    strict=True,
  ):
    np.testing.assert_array_equal(a, b)


def wait_for(process, what, condition):
  deadline = time.monotonic() + 120
  while not condition():
    assert process.poll() is None, f"ended before {what}: {process.stdout.read()}"
    assert time.monotonic() < deadline, f"no {what}"
    time.sleep(0.001)


def metric_lines(folder):
  path = folder / "metrics.jsonl"
  return path.read_text().splitlines() if path.exists() else []
