"""Several real processes in one run: equal to one process, stopped together, never left waiting."""

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

from tests import buckets, programs, resolved
from tests.ends import TIMING
from vit_jax import weights
from vit_jax.config import Mesh, from_dict
from vit_jax.storage import checkpoint, files, metrics_log
from vit_jax.storage import workdir as workdirs
from vit_jax.storage.paths import path_of
from vit_jax.storage.tree import flatten


def group(workdir, *overrides, devices=1, first=programs.MAIN, others=programs.MAIN, own=()):
  """Starts the two processes of a run, each with some simulated devices.

  `first` and `others` are the programs that the first and the other process run, with the same
  flags, and with those of `own` for each. `devices`: for each, if it is a pair.
  """
  devices = devices if isinstance(devices, tuple) else (devices, devices)
  own = own or ((), ())
  same = "--config.schedule.decay=constant"  # so that runs of any length are one program
  flags = [*programs.digits(workdir, same, *overrides)[len(programs.MAIN) :], "--processes=2"]
  flags.append(coordinator())
  return [
    programs.start([*program, *flags, *own[i], f"--process={i}"], devices=devices[i])
    for i, program in enumerate((first, others))
  ]


def coordinator():
  """The flag, with a port that is free."""
  with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    return f"--coordinator=127.0.0.1:{free.getsockname()[1]}"


def with_fault(fault):
  return [sys.executable, "-m", "tests.faults.driver", fault]


def outputs(running, timeout=240):
  """What each process printed, and its exit status."""
  with contextlib.ExitStack() as stack:
    for process in running:
      stack.callback(process.kill)
    return [(process.finish(timeout), process.returncode) for process in running]


def wait_for_step(process, step):
  """Reads and returns what a process prints until it has logged a step."""
  said = ""
  while not said.rpartition("\n")[2].startswith(f"step {step}/"):
    line = process.stdout.readline()
    assert line, f"it ended before step {step}"
    said += "\n" + line.rstrip("\n")
  return said


# The model is wide enough that fsdp splits something; the learning rate is low enough that rounding
# errors do not grow from step to step.
SETTINGS = (
  "--config.model.width=128",
  "--config.model.mlp_dim=256",
  "--config.schedule.learning_rate=1e-4",
  "--config.schedule.decay=constant",  # as in `group`
  "--config.duration.steps=20",
  "--config.evaluate_every.steps=10",
)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
  workdir = tmp_path_factory.mktemp("alone")
  result = programs.run(programs.digits(workdir, *SETTINGS), devices=4)
  assert result.returncode == 0, result.stderr
  return workdir


@pytest.fixture(scope="module")
def together(tmp_path_factory):
  """The same run, begun by one process with one device, and ended by two with two devices each."""
  workdir = tmp_path_factory.mktemp("together")
  flags = programs.digits(workdir, *SETTINGS)[len(programs.MAIN) :]
  assert programs.run([*with_fault("signal_in:evaluation"), *flags]).returncode == 75
  witnessed = with_fault("witnessed:20")
  overrides = *SETTINGS, "--config.mesh.fsdp=4"
  results = outputs(group(workdir, *overrides, devices=2, first=witnessed, others=witnessed))
  assert [status for _, status in results] == [0, 0], results[0][0][-3000:]
  return workdir, [text for text, _ in results]


def test_two_processes_go_on_with_the_run_of_one(alone, together):
  workdir, (first, second) = together
  assert "resuming after step 10" in first
  assert "step 20/20" in first
  assert "Other settings than up to step 10: config.mesh.fsdp: 1 -> 4\n" in first
  assert "step " not in second  # only the first process logs
  assert "('fsdp'" in (workdir / "parameters.txt").read_text()
  assert_nearly_equal_lines(workdir, alone)
  a, b = (flatten(weights.load(folder)) for folder in (alone, workdir))
  assert a.keys() == b.keys()
  for name, x in a.items():
    # The gradient of key/bias is zero but for rounding errors, which Adam scales up.
    atol = 1e-5 if name.endswith("key/bias") else 1e-6
    np.testing.assert_allclose(b[name], x, atol=atol, err_msg=name)


def assert_nearly_equal_lines(workdir, other):
  """The same metrics but for rounding, which depends on the step of the stop: 3e-6 was seen."""
  for a, b in zip(metrics_log.read_lines(other), metrics_log.read_lines(workdir), strict=True):
    assert a.keys() == b.keys()
    for key in a.keys() - TIMING:
      assert b[key] == pytest.approx(a[key], rel=1e-4, abs=1e-8), (key, a["step"])


DIFFERENT = {
  "seed=2": ("config.seed is 0 in process 0", "and 2 in process 1"),
  "schedule.learning_rate=1e-3": ("config.schedule.learning_rate is 0.003",),
  "verify_every=3": ("config.verify_every is 0",),
  "data.train.subset=1400": ("config.data.train.subset is 0", "more differ"),
}


@pytest.mark.parametrize(
  ("other", "devices", "words"),
  [
    (DIFFERENT, 1, sum(DIFFERENT.values(), ())),
    ([], (1, 2), ("the number and kind of devices is 1 x cpu in process 0", "and 2 x cpu in")),
    (["data.train.source=folder:/no"], 1, ("Process 1 on host", "no folder")),
    (["init_from=/no.npz"], 1, ("Process 1 on host", "/no.npz does not exist")),
    (["=/no.py"], 1, ("Process 1 on host", "/no.py")),
  ],
  ids=["settings", "devices", "a refusal", "a refusal before", "a refused command"],
)
def test_processes_that_are_not_alike_end_before_the_first_step(tmp_path, other, devices, words):
  begin = time.monotonic()
  own = (), [f"--config.{word}".replace(".=", "=") for word in other]
  (text, status), second = outputs(group(tmp_path, devices=devices, own=own), timeout=60)
  assert (status, second[1]) == (2, 2), text + second[0]
  (said,) = [line for line in text.splitlines() if line.startswith("vit_jax: ")]
  for word in words:
    assert word in said
  assert "Traceback" not in text + second[0]
  assert time.monotonic() - begin < 60
  assert not (tmp_path / "config.json").exists()


def test_a_wrong_command_is_refused_at_once_while_it_waits_for_the_others_to_tell_them():
  command = [*programs.MAIN, "--config=/no.py", coordinator(), "--processes=2", "--process=1"]
  running = programs.start(command)
  assert running.stdout.readline().startswith("vit_jax: There is no recipe /no.py")
  running.send_signal(signal.SIGINT)
  assert outputs([running], timeout=60) == [("vit_jax: Interrupted.\n", 130)]


def test_processes_that_share_no_folder_end_before_the_first_step(tmp_path):
  own = (), [f"--workdir={tmp_path / 'own'}"]
  for text, status in outputs(group(tmp_path / "first", own=own)):
    assert status == 2, text[-3000:]
    assert " is not one folder for all processes: what the first process writes" in text
  left = {path.name for path in tmp_path.rglob("*") if path.is_file()}
  assert left == {"lock"}


def test_a_workdir_in_use_ends_both_processes(tmp_path):
  with workdirs.locked(tmp_path, first=True):
    for text, status in outputs(group(tmp_path)):
      assert status == 2, text[-3000:]
      assert "is in use by another run" in text


def test_a_device_that_computes_wrongly_ends_both_and_is_named(tmp_path):
  overrides = "--config.verify_every=10", "--config.checkpoint.every.steps=4"
  wrong = with_fault("miscomputes:10")
  results = outputs(group(tmp_path, *overrides, devices=2, first=wrong, others=wrong))
  for text, status in results:
    assert status == 76, text[-3000:]
    assert "vit_jax: Step 10, computed twice from the same state and batch: 1 of " in text
    assert re.search(r"Wrong: device \d+ \(cpu\) of process 1 on host \S+\. ", text)
  assert max(checkpoint.available(tmp_path)) < 10
  kept = {path.parent.name for path in tmp_path.glob("miscomputed/10/*/values.safetensors")}
  assert kept == {"process-0", "process-1"}


def test_two_processes_that_share_no_disk_save_in_a_bucket(alone):
  with buckets.served("gs"):
    there = path_of(f"gs://{buckets.BUCKET}/run")
    settings = *SETTINGS, "--config.mesh.fsdp=2"
    for steps in (10, 20):  # the second one reads what both have brought
      running = group(there, *settings, f"--config.duration.steps={steps}")
      results = outputs(running)
      assert [status for _, status in results] == [0, 0], results[0][0][-3000:]
    assert "resuming after step 10" in results[0][0]
    folder = checkpoint.find(there, 20)
    arrays = checkpoint.read_arrays(folder, checkpoint.read_meta(folder)["arrays"])
    assert sorted(arrays) == sorted(checkpoint.read_meta(checkpoint.find(alone, 20))["arrays"])
    parts = {name.split("/")[1] for name in files.files_below(folder) if "ocdbt.process_" in name}
    assert len(parts) == 2


@pytest.mark.parametrize(("devices", "fsdp"), [(1, 1), (8, 8)])
def test_what_two_processes_saved_comes_back_bit_by_bit_on_other_devices(together, devices, fsdp):
  workdir, texts = together
  folder = checkpoint.find(workdir, 20)
  config = from_dict(checkpoint.read_meta(folder)["config"])
  config = dataclasses.replace(config, mesh=Mesh(fsdp=fsdp))
  run = resolved.run(config, jax.devices()[:devices])
  state = checkpoint.load(folder, run.abstract)
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


def test_started_by_slurm_both_stop_on_sigint_and_one_process_goes_on(alone, tmp_path):
  """Starts the processes as srun would: the same command, no flags, and SLURM's variables.

  The program passes SIGINT on as the SIGTERM of a preemption.
  """
  job = dict(SLURM_JOB_ID=str(os.getpid()), SLURM_STEP_NODELIST="localhost")
  job |= dict(SLURM_STEP_NUM_TASKS="2", SLURM_NTASKS="2")
  settings = *SETTINGS, "--config.checkpoint.every.steps=20"
  command = programs.digits(tmp_path, *settings, "--config.mesh.fsdp=2")  # as in the bucket
  running = [
    programs.start(command, **job, SLURM_PROCID=process, SLURM_LOCALID=process) for process in "01"
  ]
  said = stop_after_step_4(running, tmp_path, signal.SIGINT)
  assert "on 2 device(s)" in said
  result = programs.run(programs.digits(tmp_path, *settings), devices=4)
  assert result.returncode == 0, result.stderr
  assert_nearly_equal_lines(tmp_path, alone)


def stop_after_step_4(running, workdir, number):
  """Signals the second process; checks that all stop after one step, with a checkpoint of it.

  Returns what the first one printed before.
  """
  said = wait_for_step(running[0], 4)
  running[1].send_signal(number)
  results = outputs(running)
  assert [status for _, status in results] == [75, 75], results[0][0][-3000:]
  stopped = checkpoint.available(workdir)[-1]
  assert f"Stopped by a signal after step {stopped}" in results[0][0]
  return said


def test_sigterm_ends_an_evaluation_of_several_processes(alone):
  """JAX catches SIGTERM in joined processes, and would make it wait for the end of a step."""
  signalled = with_fault("signal_in:evaluation")
  options = dict(first=signalled, others=signalled)
  results = outputs(group(alone, *SETTINGS, "--mode=evaluate", **options))
  assert results[0][1] == -signal.SIGTERM, results[0][0][-3000:]
  assert results[1][1] != 0


def test_sigterm_stops_the_only_process_of_a_group_and_its_evaluation(tmp_path):
  """As on a TPU VM of one host."""
  flags = coordinator(), "--processes=1", "--process=0", "--config.duration.steps=1000"
  running = programs.start(programs.digits(tmp_path, *flags))
  wait_for_step(running, 4)
  running.send_signal(signal.SIGTERM)
  ((text, status),) = outputs([running], timeout=100)
  assert status == 75, text[-3000:]
  assert f"Stopped by a signal after step {checkpoint.available(tmp_path)[-1]}" in text
  evaluation = programs.digits(tmp_path, *flags, "--mode=evaluate")[len(programs.MAIN) :]
  result = programs.run([*with_fault("signal_in:evaluation"), *evaluation], timeout=100)
  assert result.returncode == 75, result.stdout + result.stderr


LOST = "(failed at|was aborted at|has made no progress since) "


@pytest.mark.parametrize(
  ("lost", "other", "words"),
  [
    (1, "witnessed:0", r"failed at step .*\. Silent for longest: process 1 \(\S+, at [^;]+; \d+ s"),
    (1, "halted_input:9", r"no progress since step .*\. Furthest behind: process 1 \(\S+, at step"),
    # All others are connected to it, so JAX aborts them, unless the watchdog is quicker; before
    # that they name the lost process.
    (0, "witnessed:0", rf"process 1 {LOST}.*\. Silent for longest: process 0 \("),
  ],
  ids=["dies", "stalls", "the first dies"],
)
def test_a_process_that_dies_or_stalls_ends_the_other_and_is_named(tmp_path, lost, other, words):
  never = (f"--config.{key}.steps=100000" for key in ("evaluate_every", "checkpoint.every"))
  overrides = "--config.duration.steps=100000", *never, "--config.stall_seconds=25"
  running = group(tmp_path, *overrides, others=with_fault(other))
  wait_for_step(running[0], 4)
  if other == "witnessed:0":
    running[lost].kill()
  begin = time.monotonic()
  text, status = outputs(running, timeout=100)[1 - lost]
  assert status == 1, text[-3000:]
  assert time.monotonic() - begin < 75
  assert re.search(words, text[text.rindex("vit_jax: ") :]), text[-3000:]
  assert "most recent call first" in text  # the stacks


def test_a_full_disk_of_one_host_stops_all_and_the_last_good_checkpoint_stays(tmp_path):
  running = group(tmp_path, "--config.checkpoint.retry_seconds=1", others=with_fault("full:20-99"))
  results = outputs(running, timeout=150)
  assert [status for _, status in results] == [1, 1], results
  for text, _ in results:
    assert re.search(r"vit_jax: .*could not be saved \(File too large, in process 1\)", text)
    assert f"the last good one is {tmp_path}/checkpoints/10. It was tried again for 1 s" in text
  assert checkpoint.available(tmp_path) == [10]
