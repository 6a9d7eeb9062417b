"""Several real processes as one run: equal metrics, exact evaluation, one checkpoint for all."""

import contextlib
import re
import signal
import socket
import time

import numpy as np
import pytest

from tests import programs
from vit_jax import checkpoint, hosts, weights, writers
from vit_jax.config import ConfigError
from vit_jax.hosts import Hosts
from vit_jax.tree import flatten


def group(workdir, *overrides, processes, devices, first=programs.MAIN):
  """Starts the processes of one run, each with as many simulated devices.

  The first may be another program than the main one, with the same flags.
  """
  with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
  return [
    programs.start(
      [
        *(programs.MAIN if i else first),
        *programs.digits(workdir, *overrides)[len(programs.MAIN) :],
        f"--coordinator=127.0.0.1:{port}",
        f"--processes={processes}",
        f"--process={i}",
      ],
      devices=devices,
    )
    for i in range(processes)
  ]


def outputs(running, timeout=240):
  """What each process printed, and its exit status."""
  with contextlib.ExitStack() as stack:
    for process in running:
      stack.callback(process.kill)
    return [(process.finish(timeout), process.returncode) for process in running]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
  workdir = tmp_path_factory.mktemp("alone")
  result = programs.run(programs.digits(workdir), devices=4)
  assert result.returncode == 0, result.stderr
  return workdir


@pytest.mark.parametrize(("processes", "devices", "fsdp"), [(2, 2, 1), (4, 1, 2)])
def test_many_processes_are_one_run(alone, tmp_path, processes, devices, fsdp):
  running = group(tmp_path, f"--config.mesh.fsdp={fsdp}", processes=processes, devices=devices)
  results = outputs(running)
  assert [status for _, status in results] == [0] * processes, results[0][0][-3000:]
  assert "step 40/40" in results[0][0]
  assert all("step " not in text for text, _ in results[1:])  # one of them speaks

  one, many = writers.read(alone), writers.read(tmp_path)
  assert [line["step"] for line in one] == [line["step"] for line in many]
  for a, b in zip(one, many, strict=True):
    for key in a.keys() & b.keys():
      if key.startswith(("loss", "grad", "param", "test/", "data/epoch", "data/bad")):
        assert b[key] == pytest.approx(a[key], rel=1e-3, abs=1e-6), (key, a["step"])
    assert a.get("test/examples") == b.get("test/examples")

  a, b = (flatten(weights.load(folder)) for folder in (alone, tmp_path))
  for name, x in a.items():
    np.testing.assert_allclose(b[name], x, atol=2e-4, err_msg=name)


def test_a_signal_to_one_process_stops_all_and_the_run_goes_on_anywhere(alone, tmp_path):
  """The checkpoint of 2 processes x 1 device is continued by one process with 4 devices."""
  long = "--config.duration.steps=40", "--config.checkpoint.every.steps=40"
  running = group(tmp_path, *long, processes=2, devices=1)
  for line in running[0].stdout:
    if line.startswith("step 8/"):
      running[1].send_signal(signal.SIGTERM)
      break
  results = outputs(running)
  assert [status for _, status in results] == [75, 75], results[0][0][-3000:]
  (stopped,) = checkpoint.available(tmp_path)
  assert 8 <= stopped <= 40

  result = programs.run(programs.digits(tmp_path, *long), devices=4)
  assert result.returncode == 0, result.stderr
  a, b = ([x for x in writers.read(w) if "loss" in x] for w in (alone, tmp_path))
  assert [line["step"] for line in a] == [line["step"] for line in b]
  for x, y in zip(a, b, strict=True):
    assert y["loss"] == pytest.approx(x["loss"], rel=1e-3)


@pytest.mark.parametrize(
  ("number", "words"),
  [
    (signal.SIGKILL, "process 0 failed at step"),
    (signal.SIGSTOP, "process 0 has got no further than step"),
  ],
)
def test_a_process_that_dies_or_stalls_ends_the_others(tmp_path, number, words):
  overrides = "--config.duration.steps=100000", "--config.stall_seconds=25"  # compiling counts
  running = group(tmp_path, *overrides, processes=2, devices=1)
  for line in running[0].stdout:
    if line.startswith("step 8/"):
      running[1].send_signal(number)
      break
  else:
    pytest.fail("it ended before step 8")
  begin = time.monotonic()
  text = running[0].finish(timeout=100)
  running[1].kill()
  running[1].finish(timeout=10)
  assert running[0].returncode == 1, text[-3000:]
  assert time.monotonic() - begin < 75
  message = text[text.rindex("vit_jax: ") :]
  assert words in message
  silent = {  # by process, the seconds since it was last heard of
    int(process): int(seconds)
    for process, seconds in re.findall(r"process (\d): .*heard (\d+) s ago", message)
  }
  assert silent[1] > silent[0]  # it names the one that is gone
  assert "most recent call first" in text  # the stacks


def test_the_first_process_that_dies_ends_the_others(tmp_path):
  """With it all others speak, so JAX itself ends them, at once, and never with status 0 or 75."""
  running = group(tmp_path, "--config.duration.steps=100000", processes=2, devices=1)
  for line in running[0].stdout:
    if line.startswith("step 8/"):
      running[0].kill()
      running[0].finish(timeout=10)
      break
  else:
    pytest.fail("it ended before step 8")
  text = running[1].finish(timeout=60)
  assert running[1].returncode in (1, -signal.SIGABRT), text[-3000:]
  assert "process 1 failed at step" in text or "another task died" in text
  assert "most recent call first" in text  # the stacks


@pytest.mark.parametrize(
  ("given", "message"),
  [
    (Hosts(coordinator="here", processes=2, process=0), "HOST:PORT"),
    (Hosts(processes=2, process=0), "HOST:PORT"),
    (Hosts(coordinator="a:1", processes=2, process=2), "--process=2 .*--processes=2"),
    (Hosts(coordinator="a:1", processes=2), "--process=-1"),
    (Hosts(coordinator="a:1"), "--process=-1 .*--processes=0"),
  ],
)
def test_flags_that_describe_no_group(given, message):
  with pytest.raises(ConfigError, match=message):
    hosts.check(given)
