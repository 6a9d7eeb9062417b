"""Runs as processes: which are done, signals, and settings."""

import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest

from tests import ends, programs, resolved
from vit_jax import config as c
from vit_jax import recipes
from vit_jax.extras.experiments import runs

DIGITS = "configs/vit_digits.py"


def write(folder, duration, *lines, cut=""):
  """Writes the files of a run with a batch of 10; `cut` is a line that was only partly written."""
  folder.mkdir(parents=True, exist_ok=True)
  config = c.to_dict(resolved.config(batch_size=10, duration=duration))
  (folder / "config.json").write_text(json.dumps(config))
  text = "".join(json.dumps(line) + "\n" for line in lines)
  (folder / "metrics.jsonl").write_text(text + cut)


def trained(step, *, epoch_examples=40):
  images = step * 10
  epochs = {"data/images": images, "data/epoch": images / epoch_examples}
  return {"step": step, "loss": 1.0} | epochs


def scored(step, top1=0.5):
  return {"step": step, "val/top1": top1, "val/loss": 1.0}


STEPS, EPOCHS = c.Duration(steps=12), c.Duration(epochs=3)
# Of several batch sizes: 3 steps of 20 images, and 6 of 10.
MIXED = trained(9) | {"data/images": 60 + 6 * 10, "data/epoch": 3.0}


@pytest.mark.parametrize(
  ("duration", "lines", "cut", "done"),
  [
    *((duration, [trained(6), scored(6), trained(12)], "", False) for duration in (STEPS, EPOCHS)),
    *((duration, [trained(12), scored(12)], "", True) for duration in (STEPS, EPOCHS)),
    (c.Duration(examples=120), [trained(12)], "", False),
    (c.Duration(examples=120), [trained(12), scored(12)], "", True),
    (STEPS, [], "", False),
    (STEPS, [trained(12)], json.dumps(scored(12)), False),  # the line was not ended
    (STEPS, [trained(12), scored(12)], "garbage\n\0\0\n[]\n", True),
    (c.Duration(epochs=4), [trained(12), scored(12)], "", False),  # its length was raised
    (EPOCHS, [MIXED, scored(9)], "", True),
    (c.Duration(epochs=4), [MIXED, scored(9), scored(12)], "", False),  # 13 steps
  ],
)
def test_a_run_is_done_when_its_last_step_was_scored(tmp_path, duration, lines, cut, done):
  assert runs.result(tmp_path / "nothing") is None
  write(tmp_path, duration, *lines, cut=cut)
  assert runs.result(tmp_path) == (lines[-1] if done else None)


@pytest.mark.parametrize("text", ["{", "[]", "{}"])
def test_a_damaged_config_is_named(tmp_path, text):
  write(tmp_path, c.Duration(steps=12), trained(12), scored(12))
  (tmp_path / "config.json").write_text(text)
  with pytest.raises(c.RunError, match=rf"{tmp_path}/config.json is damaged .*remove {tmp_path}"):
    runs.result(tmp_path)


def test_a_run_that_may_stop_early_is_refused():
  stopping = ["--config.early_stopping.metric=test/top1", "--config.early_stopping.patience=2"]
  asked = recipes.resolve(DIGITS, stopping)
  patient = dataclasses.replace(asked.early_stopping, patience=0)
  never = dataclasses.replace(asked, early_stopping=patient)
  runs.check_config(DIGITS, never, resolved.without_data(never))
  with pytest.raises(c.ConfigError, match=r"vit_digits.py may stop early .*patience=2"):
    runs.check_config(DIGITS, asked, resolved.without_data(asked))


SLEEPER = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
open(sys.argv[1], "w").close()
time.sleep(60)
"""


def test_sigterm_goes_to_the_run_under_way_and_is_waited_for(tmp_path):
  ready = tmp_path / "ready"

  def ask():
    while not ready.exists():
      pass
    os.kill(os.getpid(), signal.SIGTERM)

  before = signal.getsignal(signal.SIGTERM)
  thread = threading.Thread(target=ask)
  with runs.Children() as children:
    thread.start()
    assert children.call([sys.executable, "-c", SLEEPER, str(ready)], sys.stderr) == 75
    assert children.asked
  thread.join()
  assert signal.getsignal(signal.SIGTERM) == before


def test_what_is_asked_between_two_runs_stops_the_second():
  with runs.Children() as children:
    os.kill(os.getpid(), signal.SIGTERM)
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    assert children.call(command, sys.stderr) == -signal.SIGTERM


def test_all_that_a_run_prints_goes_to_its_file(tmp_path):
  code = "import sys; print('said', flush=True); sys.exit('why')"
  with runs.Children() as children, (tmp_path / "log").open("wb") as log:
    assert children.call([sys.executable, "-c", code], log) == 1
  assert (tmp_path / "log").read_text() == "said\nwhy\n"


ENDLESS = """
import os, pathlib, time

def tell_and_wait(path):
  pathlib.Path(path).write_text(f"{os.getpid()}\\n")
  time.sleep(1000)
"""


def test_what_is_called_apart_ends_with_a_parent_that_is_killed(tmp_path):
  told = tmp_path / "told"
  (tmp_path / "endless.py").write_text(ENDLESS)
  call = f"runs.in_new_process(endless.tell_and_wait, {str(told)!r})"
  program = f"import endless; from vit_jax.extras.experiments import runs; {call}"
  env = os.environ | {"PYTHONPATH": f"{programs.ROOT}:{tmp_path}"}
  command = [sys.executable, "-c", program]
  with subprocess.Popen(command, stderr=subprocess.DEVNULL, env=env) as parent:
    ends.wait_for(parent, "call", lambda: told.exists() and told.read_text().endswith("\n"))
    parent.kill()
  number, deadline = int(told.read_text()), time.monotonic() + 10
  while pathlib.Path(f"/proc/{number}").exists():
    assert time.monotonic() < deadline
    time.sleep(0.01)
