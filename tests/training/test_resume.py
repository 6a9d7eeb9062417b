"""Runs that are stopped at any moment and started again end with the same bits. Real processes."""

import re
import shutil
import signal
import sys

import pytest

from tests import programs
from tests.ends import assert_equal_ends, metric_lines, wait_for
from vit_jax.storage import checkpoint

COMMON = ["--config.optimizer.ema=0.9", "--config.model.dropout=0.1"]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
  workdir = tmp_path_factory.mktemp("uninterrupted")
  result = programs.run(programs.digits(workdir, *COMMON))
  assert result.returncode == 0, result.stderr
  assert checkpoint.available(workdir) == [30, 40]
  return workdir


def resume(workdir, *overrides):
  result = programs.run(programs.digits(workdir, *COMMON, *overrides))
  assert result.returncode == 0, result.stdout + result.stderr
  return result.stdout


MOMENTS = {
  "before the first step": lambda folder: (folder / "config.json").exists(),
  "inside a save": lambda folder: any(folder.glob("checkpoints/*tmp*")),
  "after a save": lambda folder: any(folder.glob("checkpoints/20/manifest.json")),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_at_any_moment(uninterrupted, tmp_path, moment):
  with programs.start(programs.digits(tmp_path, *COMMON)) as process:
    wait_for(process, moment, lambda: MOMENTS[moment](tmp_path))
    process.send_signal(signal.SIGKILL)
    process.wait()
  assert 40 not in checkpoint.available(tmp_path)
  resume(tmp_path)
  assert_equal_ends(tmp_path, uninterrupted)


def signalled(workdir, number, moment):
  """The steps whose states a run keeps that gets a signal, and its output."""
  with programs.start(programs.digits(workdir, *COMMON)) as process:
    wait_for(process, "the moment of the signal", moment)
    process.send_signal(number)
    output = process.stdout.read()
  assert process.returncode == 75, output
  return checkpoint.available(workdir), output


def test_a_signal_saves_and_says_start_again(uninterrupted, tmp_path):
  logged = lambda: len(metric_lines(tmp_path)) >= 2
  (*_, last), output = signalled(tmp_path, signal.SIGTERM, logged)
  assert f"Stopped by a signal after step {last}" in output
  assert "Start the same command again" in output
  assert f"Stopping after step {last}; saving" in output
  assert re.search(r"^Time:       0:.*% steps, .*% idle$", output, re.M)
  again = resume(tmp_path)
  assert f"resuming after step {last}" in again
  assert "Other settings" not in again
  assert_equal_ends(tmp_path, uninterrupted)


def test_a_damaged_checkpoint_costs_only_the_steps_since_the_one_before(uninterrupted, tmp_path):
  two_saves = (tmp_path / "checkpoints/20/manifest.json").exists
  (*_, before, last), _ = signalled(tmp_path, signal.SIGINT, two_saves)
  path = next((tmp_path / "checkpoints" / str(last) / "state" / "d").iterdir())
  data = bytearray(path.read_bytes())
  data[len(data) // 2] ^= 4
  path.write_bytes(data)
  assert f"resuming after step {before}" in resume(tmp_path)
  assert_equal_ends(tmp_path, uninterrupted)


def test_a_run_whose_checkpoints_were_removed_is_refused_and_keeps_its_records(
  uninterrupted, tmp_path
):
  workdir = tmp_path / "run"
  shutil.copytree(uninterrupted, workdir, ignore=shutil.ignore_patterns("checkpoints", "lock"))
  before = metric_lines(workdir)
  result = programs.run(programs.digits(workdir, *COMMON))
  assert result.returncode == 2, result.stdout
  assert f"{workdir} has metrics of 40 steps" in programs.message(result)
  assert metric_lines(workdir) == before


HEARD = """
import ctypes
import os
import signal
import threading
import time
import jax
from vit_jax.process import console

stop = console.StopRequest()
stop.listen()
stop.hold()

@jax.jit
def step(x):
  return jax.pure_callback(lambda x: os.kill(os.getpid(), signal.SIGINT) or x, x, x)

print(float(step(jax.numpy.float32(3))))
while not stop.agreed(1):
  time.sleep(0.01)
print("asked", flush=True)
threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
while True:
  ctypes.CDLL(None).usleep(100_000)  # the main thread is hardly ever in Python
"""


@pytest.fixture(scope="module")
def heard():
  return programs.run([sys.executable, "-c", HEARD], timeout=60)


def test_a_signal_inside_a_callback_of_jax_is_neither_raised_nor_lost(heard):
  assert heard.stdout == "3.0\nasked\n", heard.stderr


def test_a_second_ctrl_c_ends_the_process_at_once(heard):
  assert (heard.returncode, heard.stderr) == (130, "vit_jax: Interrupted.\n")


@pytest.mark.parametrize(
  ("number", "status", "words"),
  [
    (signal.SIGTERM, 75, "before there was anything to save; start the same command again"),
    (signal.SIGINT, 130, "vit_jax: Interrupted."),
  ],
)
def test_a_signal_before_there_is_anything_to_save_ends_the_run_at_once(
  tmp_path, number, status, words
):
  command = [sys.executable, "-m", "tests.faults.driver", "endless_compilation:"]
  command += programs.digits(tmp_path, *COMMON)[len(programs.MAIN) :]
  with programs.start(command) as process:
    for line in process.stdout:
      if "compiling now" in line:
        break
    process.send_signal(number)
    assert process.wait(timeout=60) == status
    assert words in process.stdout.read()


def test_a_second_run_on_the_same_workdir_is_refused(tmp_path):
  command = programs.digits(tmp_path, "--config.duration.steps=100000")
  with programs.start(command) as process:
    wait_for(process, "start", (tmp_path / "config.json").exists)  # after the lock
    result = programs.run(command)
    process.kill()
  assert result.returncode == 2
  assert "in use by another run" in result.stderr
