"""Runs as processes: which are done, what their exit status means, signals, and settings."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest

from tests import ends, programs
from tests.data.test_image_files import soon
from vit_jax import config as c
from vit_jax import recipes
from vit_jax.experiments import runs

DIGITS = "configs/vit_digits.py"


def write(folder, duration, *lines, cut=""):
  """Writes the files of a run with a batch of 10; `cut` is a line that was only partly written."""
  folder.mkdir(parents=True, exist_ok=True)
  config = c.to_dict(c.Config(batch_size=10, duration=duration))
  (folder / "config.json").write_text(json.dumps(config))
  text = "".join(json.dumps(line) + "\n" for line in lines)
  (folder / "metrics.jsonl").write_text(text + cut)


def trained(step, *, epoch_examples=40):
  return {"step": step, "loss": 1.0, "data/epoch": step * 10 / epoch_examples}


def scored(step, top1=0.5):
  return {"step": step, "val/top1": top1, "val/loss": 1.0}


@pytest.mark.parametrize(
  "duration", [c.Duration(steps=12), c.Duration(epochs=3), c.Duration(examples=120)]
)
def test_a_run_is_done_when_its_last_step_was_scored(tmp_path, duration):
  assert runs.result(tmp_path / "nothing") is None
  write(tmp_path, duration)
  assert runs.result(tmp_path) is None
  lines = [trained(6), scored(6), trained(12)]
  write(tmp_path, duration, *lines)
  assert runs.result(tmp_path) is None
  cut = json.dumps(scored(12, 0.9))
  write(tmp_path, duration, *lines, cut=cut)
  assert runs.result(tmp_path) is None
  write(tmp_path, duration, *lines, scored(12, 0.75))
  assert runs.result(tmp_path) == scored(12, 0.75)
  assert list(runs.accuracies(runs.result(tmp_path)).values()) == [0.75]


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", '{"batch_size": 10}', "[" * 10**5])
def test_a_damaged_config_is_named(tmp_path, text):
  write(tmp_path, c.Duration(steps=12), trained(12), scored(12))
  (tmp_path / "config.json").write_text(text)
  with pytest.raises(c.RunError, match=rf"{tmp_path}/config.json is damaged .*remove {tmp_path}"):
    runs.result(tmp_path)


def test_a_config_that_is_a_fifo_is_not_waited_for(tmp_path):
  write(tmp_path, c.Duration(steps=12), trained(12), scored(12))
  (tmp_path / "config.json").unlink()
  os.mkfifo(tmp_path / "config.json")
  with soon(), pytest.raises(c.RunError, match=r"is damaged .*It is a FIFO"):
    runs.result(tmp_path)


def test_damaged_lines_of_metrics_do_not_count(tmp_path):
  write(tmp_path, c.Duration(steps=12), trained(12), scored(12), cut="garbage\n\0\0\n[]\n")
  assert runs.result(tmp_path) == scored(12)


def test_a_run_whose_length_was_raised_is_not_done(tmp_path):
  write(tmp_path, c.Duration(epochs=4), trained(12), scored(12))
  assert runs.result(tmp_path) is None


def test_a_run_that_may_stop_early_is_refused():
  stopping = ["--config.early_stopping.metric=test/top1", "--config.early_stopping.patience=2"]
  assert runs.accept(DIGITS, stopping[:1]).early_stopping.metric == "test/top1"
  with pytest.raises(c.ConfigError, match=r"vit_digits.py may stop early .*patience=2"):
    runs.accept(DIGITS, stopping)


def one(tmp_path, name="first"):
  return runs.Run(name=name, recipe=DIGITS, folder=tmp_path / name, overrides=("--config.seed=3",))


def calling(monkeypatch, **statuses):
  """Processes with these exit statuses; with status 0 they write the files of a finished run."""
  called = []

  def call(_, command):
    folder = next(part.removeprefix("--workdir=") for part in command if "--workdir" in part)
    called.append(command)
    name = os.path.basename(folder)
    if not statuses[name]:
      write(runs.pathlib.Path(folder), c.Duration(steps=1), trained(1), scored(1))
    return statuses[name]

  monkeypatch.setattr(runs.Children, "call", call)
  return called


def test_runs_are_done_in_order_and_once(tmp_path, monkeypatch):
  called, said = calling(monkeypatch, first=0, second=0), []
  both = [one(tmp_path), one(tmp_path, "second")]
  runs.execute(both[:1], say=said.append)
  runs.execute(both, say=said.append)
  recipe = f"--config={DIGITS}"
  assert called == [
    [sys.executable, "-m", "vit_jax.main", recipe, f"--workdir={run.folder}", "--config.seed=3"]
    for run in both
  ]
  assert said[0] == f"Run 1 of 1, first: python {' '.join(called[0][1:])}"
  assert said[1] == f"Run 1 of 2, first: done, in {tmp_path / 'first'}"
  assert said[2].startswith("Run 2 of 2, second: python -m vit_jax.main")


@pytest.mark.parametrize(
  ("status", "kind"), [(1, c.RunError), (2, c.ConfigError), (-9, c.RunError)]
)
def test_a_run_that_failed_is_named_with_its_command(tmp_path, monkeypatch, status, kind):
  called = calling(monkeypatch, first=0, second=status, third=0)
  all_three = [one(tmp_path, name) for name in ("first", "second", "third")]
  with pytest.raises(kind) as caught:
    runs.execute(all_three, say=lambda _: None)
  said = str(caught.value)
  assert said.startswith(f"Second failed with exit status {status};")
  assert all_three[1].command() in said
  assert "All other runs are kept" in said
  assert len(called) == 2
  assert runs.result(all_three[0].folder)


def test_a_run_that_a_signal_stopped(tmp_path, monkeypatch):
  calling(monkeypatch, first=75)
  with pytest.raises(c.Stopped, match="start the same command again"):
    runs.execute([one(tmp_path)], say=lambda _: None)


def test_a_run_that_scored_nothing_has_failed(tmp_path, monkeypatch):
  calling(monkeypatch, first=0)
  monkeypatch.setattr(runs, "result", lambda folder: None)
  with pytest.raises(c.RunError, match="ended without an evaluation"):
    runs.execute([one(tmp_path)], say=lambda _: None)


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
    assert children.call([sys.executable, "-c", SLEEPER, str(ready)]) == 75
    assert children.asked
  thread.join()
  assert signal.getsignal(signal.SIGTERM) == before


def test_what_is_asked_between_two_runs_stops_the_second(tmp_path, capfd):
  with runs.Children() as children:
    os.kill(os.getpid(), signal.SIGTERM)
    assert children.call([sys.executable, "-c", "import time; time.sleep(60)"]) == -signal.SIGTERM


def test_what_a_run_prints_goes_to_stderr(capfd):
  with runs.Children() as children:
    assert children.call([sys.executable, "-c", "print('said'); raise SystemExit(3)"]) == 3
  assert capfd.readouterr() == ("", "said\n")


def test_settings_are_resolved_as_by_the_main_job():
  plain = recipes.load(str(programs.ROOT / DIGITS))
  overrides = ["--config.seed=7", "--config.duration.steps=3", "--config.duration.steps=4"]
  found = recipes.resolve(str(programs.ROOT / DIGITS), overrides)
  expected = c.to_dict(plain) | dict(seed=7, duration=dict(steps=4, epochs=0.0, examples=0))
  assert c.to_dict(found) == expected


@pytest.mark.parametrize(
  ("override", "message"),
  [
    ("--config.sed=1", r"config\.sed is not a setting; nearest: config\.seed"),
    ("--config.seed=x", r"config\.seed='x' cannot be read as int"),
    ("--config.seed=-1", r"config\.seed=-1 is too small"),
  ],
)
def test_wrong_settings(override, message):
  with pytest.raises(c.ConfigError, match=message):
    recipes.resolve(str(programs.ROOT / DIGITS), [override])


@pytest.mark.parametrize("tool", ["sweep", "vtab", "study"])
def test_jax_is_not_imported(tool):
  code = (
    f"import sys; import tools.{tool};"
    "print([name for name in ('jax', 'tensorflow') if name in sys.modules])"
  )
  done = subprocess.run(
    [sys.executable, "-c", code], cwd=programs.ROOT, capture_output=True, text=True, check=True
  )
  assert done.stdout.strip() == "[]"


def tell_and_wait(path):
  """Writes the number of this process into a file, and never ends."""
  pathlib.Path(path).write_text(f"{os.getpid()}\n")
  time.sleep(1000)


def test_what_is_called_apart_ends_with_a_parent_that_is_killed(tmp_path):
  told = tmp_path / "told"
  program = (
    f"from tests.experiments import test_runs as t;t.runs.apart(t.tell_and_wait, {str(told)!r})"
  )
  with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL) as parent:
    ends.wait_for(parent, "call", lambda: told.exists() and told.read_text().endswith("\n"))
    parent.kill()
  number, deadline = int(told.read_text()), time.monotonic() + 10
  while pathlib.Path(f"/proc/{number}").exists():
    assert time.monotonic() < deadline
    time.sleep(0.01)
