"""Two runs compared bit by bit, a run as it was before its end, and waiting for a moment of one."""

import shutil
import time

import numpy as np

from vit_jax.storage import checkpoint, metrics_log
from vit_jax.training.speed import CAUSES

TIMING = {
  "images_per_second",
  "step_seconds",
  "eta_seconds",
  "data/input_wait",
  "mfu",
  "goodput",
  *(f"time/{cause}" for cause in ("steps", *CAUSES, "verification", "idle")),
}


def final_state(workdir, step=40):
  """Every array of the last checkpoint, and what a run logs that is not time."""
  folder = checkpoint.find(workdir, step)
  arrays = checkpoint.read_arrays(folder, checkpoint.read_meta(folder)["arrays"])
  lines = [
    {k: v for k, v in line.items() if k not in TIMING} for line in metrics_log.read_lines(workdir)
  ]
  return arrays, lines


def assert_equal_ends(workdir, other, step=40, *, logged_after=0):
  """The same parameters, moments, averages and counts, bit by bit, and the same metrics.

  The metrics are compared from the step after `logged_after` on.
  """
  (arrays, lines), (others, other_lines) = (final_state(run, step) for run in (workdir, other))
  assert arrays.keys() == others.keys()
  assert {"params", "optimizer", "ema", "step"} <= {name.partition("/")[0] for name in arrays}
  for name, array in arrays.items():
    np.testing.assert_array_equal(array, others[name], err_msg=name)
  after = lambda found: [line for line in found if line["step"] > logged_after]
  assert after(lines) == after(other_lines)


def copy_as_stopped(run, folder, *, step):
  """Copies a finished run as if it had been stopped after the checkpoint of this step."""
  shutil.copytree(run, folder)
  later = [path for path in (folder / "checkpoints").iterdir() if int(path.name) > step]
  assert later
  for path in later:
    shutil.rmtree(path)


def wait_for(process, what, condition):
  deadline = time.monotonic() + 120
  while not condition():
    assert process.poll() is None, f"ended before {what}: {process.stdout.read()}"
    assert time.monotonic() < deadline, f"no {what}"
    time.sleep(0.001)


def metric_lines(folder):
  path = folder / "metrics.jsonl"
  return path.read_text().splitlines() if path.exists() else []
