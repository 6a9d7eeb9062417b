"""Several real processes in one run: equal metrics, exact evaluation, one checkpoint for all."""

import ast
import contextlib
import dataclasses
import os
import re
import signal
import socket
import sys
import time

import jax
import numpy as np
import pytest

from tests import programs
from tests.ends import TIMING
from vit_jax import weights
from vit_jax.config import ConfigError, Mesh, from_dict
from vit_jax.devices import hosts
from vit_jax.devices.hosts import Hosts
from vit_jax.storage import checkpoint, metrics_log
from vit_jax.storage.tree import flatten
from vit_jax.training import run as runs


def group(workdir, *overrides, processes, devices, first=programs.MAIN, others=programs.MAIN):
  """Starts the processes of one run, each with the same number of simulated devices.

  `first` and `others` are the programs that the first and the other processes run, with the same
  flags.
  """
  with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
  return [
    programs.start(
      [
        *(others if i else first),
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


# The model is wide enough that fsdp splits something; the learning rate is low enough that rounding
# errors do not grow from step to step.
SETTINGS = (
  "--config.model.width=128",
  "--config.model.mlp_dim=256",
  "--config.schedule.learning_rate=1e-4",
)
WITNESSED = [sys.executable, "-m", "tests.faults.driver", "witnessed:40"]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
  workdir = tmp_path_factory.mktemp("alone")
  result = programs.run(programs.digits(workdir, *SETTINGS), devices=4)
  assert result.returncode == 0, result.stderr
  return workdir


@pytest.fixture(scope="module", params=[(2, 2, 4)], ids=["2x2 fsdp=4"])
def together(request, tmp_path_factory):
  """The same run by several processes: its workdir and what each process printed."""
  processes, devices, fsdp = request.param
  workdir = tmp_path_factory.mktemp("together")
  overrides = *SETTINGS, f"--config.mesh.fsdp={fsdp}"
  options = dict(processes=processes, devices=devices, first=WITNESSED, others=WITNESSED)
  results = outputs(group(workdir, *overrides, **options))
  assert [status for _, status in results] == [0] * processes, results[0][0][-3000:]
  splits = "('fsdp'" in (workdir / "parameters.txt").read_text()
  assert splits == (fsdp > 1)
  return workdir, [text for text, _ in results]


def test_many_processes_are_one_run(alone, together):
  workdir, texts = together
  assert "step 40/40" in texts[0]
  assert all("step " not in text for text in texts[1:])  # only the first process logs

  for a, b in zip(metrics_log.read(alone), metrics_log.read(workdir), strict=True):
    assert a.keys() == b.keys()
    for key in a.keys() - TIMING:
      assert b[key] == pytest.approx(a[key], rel=1e-6, abs=1e-9), (key, a["step"])

  a, b = (flatten(weights.load(folder)) for folder in (alone, workdir))
  assert a.keys() == b.keys()
  for name, x in a.items():
    # The gradient of key/bias is zero but for rounding errors, which Adam scales up.
    atol = 1e-5 if name.endswith("key/bias") else 1e-6
    np.testing.assert_allclose(b[name], x, atol=atol, err_msg=name)


@pytest.mark.parametrize(("devices", "fsdp"), [(1, 1), (8, 1), (8, 8)])
def test_what_many_processes_saved_comes_back_bit_by_bit_on_other_devices(together, devices, fsdp):
  workdir, texts = together
  folder = checkpoint.find(workdir, 40)
  config = from_dict(checkpoint.read_meta(folder)["config"])
  config = dataclasses.replace(config, mesh=Mesh(fsdp=fsdp))
  made = runs.make(config, runs.open_data(config), jax.devices()[:devices])
  state = checkpoint.load(folder, made.abstract)
  restored = {
    jax.tree_util.keystr(path): x for path, x in jax.tree_util.tree_leaves_with_path(state)
  }
  seen = set()
  for process in range(len(texts)):
    for part, held in np.load(workdir / f"held-by-{process}.npz").items():
      name, _, bounds = part.partition("@")
      index = tuple(slice(*bound) for bound in ast.literal_eval(bounds))
      np.testing.assert_array_equal(restored[name][index], held, err_msg=part)
      seen.add(name)
  assert seen == restored.keys()


def test_without_labels_many_processes_are_one_run_too(tmp_path):
  """The corrupted patches of an image depend on its place in the global batch alone."""
  masked = (
    "--config.objective.kind=masked_patches",
    "--config.data.train.label_key=",
    "--config.evaluate.test.source=",
    "--config.duration.steps=12",
    "--config.evaluate_every.steps=12",
    "--config.checkpoint.every.steps=12",
  )
  one, two = tmp_path / "one", tmp_path / "two"
  result = programs.run(programs.digits(one, *masked), devices=2)
  assert result.returncode == 0, result.stderr
  results = outputs(group(two, *masked, processes=2, devices=1))
  assert [status for _, status in results] == [0, 0], results[0][0][-3000:]
  lines = metrics_log.read(one), metrics_log.read(two)
  assert "train/accuracy_masked" in lines[0][0]
  for a, b in zip(*lines, strict=True):
    assert a.keys() == b.keys()
    for key in a.keys() - TIMING:
      assert b[key] == pytest.approx(a[key], rel=1e-5, abs=1e-9), (key, a["step"])


def test_a_signal_to_one_process_stops_all_and_the_run_goes_on_anywhere(alone, tmp_path):
  """The checkpoint of 2 processes x 1 device is continued by one process with 4 devices."""
  long = *SETTINGS, "--config.duration.steps=40", "--config.checkpoint.every.steps=40"
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
  a, b = ([x for x in metrics_log.read(w) if "loss" in x] for w in (alone, tmp_path))
  assert [line["step"] for line in a] == [line["step"] for line in b]
  for x, y in zip(a, b, strict=True):
    assert y["loss"] == pytest.approx(x["loss"], rel=1e-6)


def test_under_slurm_the_processes_find_one_another(tmp_path):
  """Starts the processes as srun would: the same command, no flags, and SLURM's variables."""
  job = dict(
    SLURM_JOB_ID=str(os.getpid()),
    SLURM_STEP_NODELIST="localhost",
    SLURM_STEP_NUM_TASKS="2",
    SLURM_NTASKS="2",
  )
  running = [
    programs.start(
      programs.digits(tmp_path), **job, SLURM_PROCID=str(process), SLURM_LOCALID=str(process)
    )
    for process in range(2)
  ]
  results = outputs(running)
  assert [status for _, status in results] == [0, 0], results[0][0][-3000:]
  assert "on 2 device(s)" in results[0][0]


BATCH = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_PROCID": "0"}  # of a batch script


@pytest.mark.parametrize(
  ("variables", "device", "joins"),
  [
    ({}, False, False),
    ({}, True, True),
    ({**BATCH, "SLURM_NTASKS": "1", "SLURM_STEP_NUM_TASKS": "1"}, False, False),  # srun -n1
    (BATCH, False, False),  # sbatch without srun
    ({**BATCH, "SLURM_STEP_NUM_TASKS": "1"}, False, False),  # the shell of salloc
    ({**BATCH, "SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "2"}, False, True),
  ],
)
def test_processes_are_joined_where_the_machine_knows_of_others(
  monkeypatch, tmp_path, variables, device, joins
):
  for name in [name for name in os.environ if name.startswith("SLURM_")]:
    monkeypatch.delenv(name)
  for name, value in variables.items():
    monkeypatch.setenv(name, value)
  (tmp_path / "accel0").touch()
  monkeypatch.setattr(hosts, "TPU_DEVICES", (str(tmp_path / ("accel0" if device else "none")),))
  monkeypatch.setattr(hosts.importlib.util, "find_spec", {"libtpu": "found"}.get)
  calls = []
  monkeypatch.setattr(jax.distributed, "initialize", lambda **given: calls.append(given))
  hosts.connect(Hosts(), stall_seconds=30)
  assert calls == ([{"heartbeat_timeout_seconds": 120}] if joins else [])


def test_sigterm_ends_an_evaluation_of_several_processes(alone):
  """JAX catches SIGTERM in joined processes, and would make it wait for the end of a step."""
  signalled = [sys.executable, "-m", "tests.faults.driver", "signal_in:evaluation"]
  options = dict(processes=2, devices=1, first=signalled, others=signalled)
  results = outputs(group(alone, *SETTINGS, "--mode=evaluate", **options))
  assert results[0][1] == -signal.SIGTERM, results[0][0][-3000:]
  assert results[1][1] != 0


@pytest.mark.parametrize("signalled", [(0, 1), (1,)])
def test_ctrl_c_stops_a_run_of_several_processes_as_it_does_one(tmp_path, signalled):
  running = group(tmp_path, "--config.duration.steps=100000", processes=2, devices=1)
  for line in running[0].stdout:
    if line.startswith("step 8/"):
      for process in signalled:
        running[process].send_signal(signal.SIGINT)
      break
  results = outputs(running)
  assert [status for _, status in results] == [75, 75], results[0][0][-3000:]
  last = max(checkpoint.available(tmp_path))
  assert f"Stopped by a signal after step {last}" in results[0][0]


# Training steps only: no evaluation, no checkpoint.
ENDLESS = (
  "--config.duration.steps=100000",
  "--config.evaluate_every.steps=100000",
  "--config.checkpoint.every.steps=100000",
)
HALTED = [sys.executable, "-m", "tests.faults.driver", "halted_input:9"]


@pytest.mark.parametrize(
  ("other", "words"),
  [
    (
      programs.MAIN,
      r"failed at step .*\. Silent for longest: process 1 \(\S+, at [^;]+; \d+ s\)",
    ),
    (HALTED, r"no progress since step \d+ .*\. Furthest behind: process 1 \(\S+, at step 7\)"),
  ],
  ids=["dies", "stalls"],
)
def test_a_process_that_dies_or_stalls_ends_the_others_and_is_named(tmp_path, other, words):
  overrides = *ENDLESS, "--config.stall_seconds=25"  # compiling counts
  running = group(tmp_path, *overrides, processes=2, devices=1, others=other)
  for line in running[0].stdout:
    if line.startswith("step 4/"):
      break
  else:
    pytest.fail("it ended before step 4")
  if other is programs.MAIN:
    running[1].kill()
  begin = time.monotonic()
  (text, status), _ = outputs(running, timeout=100)
  assert status == 1, text[-3000:]
  assert time.monotonic() - begin < 75
  assert re.search(words, text[text.rindex("vit_jax: ") :]), text[-3000:]
  assert "most recent call first" in text  # the stacks


def test_the_first_process_that_dies_ends_the_others(tmp_path):
  """All others are connected to it, so JAX aborts them; before that they name the lost process."""
  running = group(tmp_path, *ENDLESS, "--config.stall_seconds=25", processes=2, devices=1)
  for line in running[0].stdout:
    if line.startswith("step 8/"):
      running[0].kill()
      running[0].finish(timeout=10)
      break
  else:
    pytest.fail("it ended before step 8")
  text = running[1].finish(timeout=60)
  assert running[1].returncode == 1, text[-3000:]
  assert re.search(r"vit_jax: process 1 (failed|was aborted) at step", text), text[-3000:]
  last = text[text.rindex("vit_jax: ") :]
  assert re.search(r"Silent for longest: process 0 \(\S+, at [^;]+; \d+ s\)", last), text[-3000:]
  assert "most recent call first" in text  # the stacks


ABORTED = """
import os, threading, time
from vit_jax.devices import hosts

hosts.before_abort(lambda: print("never"))
hosts.before_abort(lambda: (time.sleep(0.5), print("the last word", flush=True)))
threading.Thread(target=os.abort).start()
while True:
  time.sleep(1)
"""


def test_a_process_that_is_aborted_has_the_last_word():
  result = programs.run([sys.executable, "-X", "faulthandler", "-c", ABORTED], timeout=60)
  assert (result.returncode, result.stdout, result.stderr) == (1, "the last word\n", "")


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


def test_the_coordinator_listens_only_where_it_was_told():
  assert hosts.bind_address("127.0.0.1:1234") == "127.0.0.1:1234"
  assert hosts.bind_address("[::1]:1234") in ("[::1]:1234", None)  # None without IPv6
  assert hosts.bind_address("192.0.2.1:1234") is None  # not of this machine: translated on the way
  assert hosts.bind_address("no-such-host.invalid:1234") is None


def test_a_second_process_of_the_same_number_is_refused_and_the_first_is_left_alone():
  first = hosts.Hosts("127.0.0.1:65001", 2, 1)
  hosts.claim(first)
  with pytest.raises(ConfigError, match=r"--process=1 with --coordinator=127\.0\.0\.1:65001 runs"):
    hosts.claim(first)
  hosts.claim(hosts.Hosts("127.0.0.1:65001", 2, 0))
