"""Faults of one host of several, and a run that goes on with more hosts than it began with."""

import re
import sys

import pytest

from tests.devices.test_hosts import group, outputs
from tests.faults import faulty
from vit_jax.storage import checkpoint, metrics_log


def full(steps):
  return [sys.executable, "-m", "tests.faults.driver", f"full:{steps}"]


def test_a_full_disk_of_one_host_stops_all_and_the_last_good_checkpoint_stays(tmp_path):
  options = *faulty.COMMON, "--config.checkpoint.retry_seconds=1"
  running = group(tmp_path, *options, processes=2, devices=1, others=full("20-99"))
  results = outputs(running, timeout=150)
  assert [status for _, status in results] == [1, 1], results
  for said, _ in results:
    assert re.search(r"vit_jax: .*could not be saved \(File too large, in process 1\)", said)
    assert f"the last good one is {tmp_path}/checkpoints/10. It was tried again for 1 s" in said
  assert checkpoint.available(tmp_path) == [10]


def test_a_run_goes_on_with_more_hosts_and_devices(uninterrupted, tmp_path):
  assert faulty.run("signal_in:evaluation", tmp_path).returncode == 75
  assert checkpoint.available(tmp_path) == [10, 20]
  running = group(tmp_path, *faulty.COMMON, "--config.mesh.fsdp=2", processes=2, devices=2)
  results = outputs(running)
  assert [status for _, status in results] == [0, 0], results[0][0][-3000:]
  assert "resuming after step 20" in results[0][0]
  said = ["Other settings than up to step 20: config.mesh.fsdp: 1 -> 2\n" in x for x, _ in results]
  assert said == [True, False]
  assert_nearly_equal_losses(tmp_path, uninterrupted)


def assert_nearly_equal_losses(workdir, other):
  one, many = ([x for x in metrics_log.read(w) if "loss" in x] for w in (other, workdir))
  assert [line["step"] for line in one] == [line["step"] for line in many]
  for a, b in zip(one, many, strict=True):
    assert b["loss"] == pytest.approx(a["loss"], rel=1e-3)
