"""Every logger gets the whole run, each line once, and never gets in its way."""

import contextlib
import importlib.util
import json
import os
import shutil
import sys
import threading
import time
import types
import warnings

import jax
import pytest

from tests.extras.loggers import fakes, real
from tests.seams import program
from vit_jax import registry
from vit_jax.config import Config, ConfigError, RunError
from vit_jax.config.fields import switched_on
from vit_jax.extras.loggers import logger
from vit_jax.storage import metrics_log
from vit_jax.storage.metrics_log import NoWriter, Writer
from vit_jax.training.loop import LoopState

LIBRARIES = ("wandb", "mlflow", "trackio")
PROJECT = real.PROJECT
SETTINGS = (
  "--config.duration.epochs=0",
  "--config.duration.steps=8",
  "--config.evaluate_every.steps=4",
  "--config.checkpoint.every.steps=2",
  "--config.report=True",
)


ENVIRONMENT = {  # of the real libraries
  "WANDB_MODE": "offline",
  "WANDB_DIR": "{folder}",
  "WANDB_X_DISABLE_STATS": "true",
  "MLFLOW_TRACKING_URI": "file:{folder}/mlruns",
  "MLFLOW_ALLOW_FILE_STORE": "true",
  "MLFLOW_DISABLE_TELEMETRY": "true",
  "TRACKIO_DIR": "{folder}/trackio",
}


def stopped_and_repeated(run, libraries):
  """A run of eight steps that is stopped after step 4, and repeats steps 7 and 8.

  Returns what the files of the libraries say after the first start.
  """
  words = (*SETTINGS, *(f"--config.{name}={PROJECT}" for name in libraries))
  assert not program.run(run, *words, stop=program.StopAfter(4))  # its evaluation comes later
  first = {name: recorded(run, name) for name in libraries}
  assert program.run(run, *words)
  shutil.rmtree(run / "checkpoints" / "8")  # as if killed after step 8 was logged
  assert program.run(run, *words)
  return first


@pytest.fixture(scope="module", params=["fake", "real"])
def logged_run(request, tmp_path_factory):
  """(workdir, {library: (its file after the first start, what it has kept)})."""
  folder = tmp_path_factory.mktemp(request.param)
  run = folder / "run"
  there = [name for name in LIBRARIES if request.param == "fake" or importlib.util.find_spec(name)]
  if not there:
    pytest.skip("none of the libraries is installed")
  with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
    warnings.simplefilter("default")  # of the libraries
    only = jax.devices()[:1]
    patch.setattr(jax, "devices", lambda *_: only)
    for name, value in ENVIRONMENT.items():
      patch.setenv(name, value.format(folder=folder))
    made = {name: fakes.Library(name) for name in LIBRARIES}
    if request.param == "fake":
      for name, library in made.items():
        patch.setitem(sys.modules, name, library.module)
    first = stopped_and_repeated(run, there)
    if request.param == "fake":
      kept = {name: made[name].runs[PROJECT, first[name]["run"]] for name in there}
    else:
      kept = {name: getattr(real, name)(folder, first[name]["run"]) for name in there}
    yield run, {name: (first[name], kept[name]) for name in there}


def recorded(run, name):
  return json.loads((run / f"{name}.json").read_text())


@pytest.mark.parametrize("name", LIBRARIES)
def test_all_is_logged_once(name, logged_run):
  run, libraries = logged_run
  if name not in libraries:
    pytest.skip(f"{name} is not installed")
  first, seen = libraries[name]
  assert recorded(run, name) == {**first, "step": 8, "lines": 2}
  written = [(line.pop("step"), line) for line in metrics_log.read_lines(run)]
  assert [step for step, _ in written] == [1, 2, 3, 4, 4, 5, 6, 7, 8, 8]
  assert without_times(seen.lines) == without_times(written)
  settings = logger.plain(json.loads((run / "config.json").read_text()))
  assert settings["model.depth"] == 1
  of_settings = {key: str(seen.settings[key]) for key in settings}
  assert of_settings == {key: str(value) for key, value in settings.items()}
  assert seen.pictures == {(8, "curves"), (8, "test/confusion")}
  assert seen.paths["checkpoint"] == str(run / "checkpoints" / "8")
  assert seen.paths["report"] == str(run / "report.html")
  assert seen.status == "finished"


def without_times(lines):
  """The lines without what each start measures anew."""
  measured = ("time/", "images_per_second", "step_seconds", "eta_seconds", "goodput", "data/input")
  return [
    (step, {key: float(value) for key, value in line.items() if not key.startswith(measured)})
    for step, line in lines
  ]


class Fake(logger.Logger):
  """Keeps what it is given; its project is the name of a method that fails, or hangs."""

  library = "fake"
  title = "Fake"
  hanging = threading.Event()

  def __init__(self, run, session):
    super().__init__(run, session)
    self.calls = []

  def _called(self, *call):
    if self._project == call[0]:
      raise SystemExit("no network")
    if self._project == f"hanging {call[0]}":
      self.hanging.wait(60)
    self.calls.append(call)

  def open_run(self, project, known, name, settings):
    self._called("open", known, name)
    return known or "new", "in memory"

  def log_metrics(self, step, metrics):
    self._called("metrics", step, metrics)

  def log_picture(self, step, name, png):
    self._called("picture", step, name, png)

  def log_paths(self, step, paths):
    self._called("paths", step, paths)

  def finish(self, status):
    self._called("finish", status)


def start(folder, project="tests", *, step=0, left=True, writer=None, changed=()):
  """A logger of a run that goes on after a step; `waits` names what the end waits for."""
  waits = []
  nothing = types.SimpleNamespace
  session = nothing(
    folder=folder,
    writer=writer or Writer(folder, start_step=step),
    left=left,
    checkpoints=nothing(last_step=lambda: step),
    watchdog=nothing(beat=waits.append),
  )
  run = nothing(config=nothing(fake=project), resume_point=nothing(step=step), changed=changed)
  made = Fake(run, session)
  made.waits = waits
  made.start(LoopState(step, None))
  return made, session.writer


@pytest.fixture
def plain(monkeypatch):
  """The runs of these tests have no settings."""
  monkeypatch.setattr(logger, "to_dict", lambda config: {})


def logged(made):
  metrics = [call[1:] for call in made.calls if call[0] == "metrics"]
  assert all(isinstance(value, float) for _, line in metrics for value in line.values())
  return [step for step, _ in metrics]


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("method", ["open", "metrics", "picture", "paths", "finish"])
def test_a_logger_that_fails_says_so_once_and_all_is_written(method, tmp_path, capsys):
  made, writer = start(tmp_path, method)
  for step in (1, 2):
    writer.write(step, {"loss": 0.5})
    writer.picture(step, "test/patches", b"png")
  made.end(LoopState(2, None))
  writer.close()
  said = capsys.readouterr().out
  assert said.count("Fake fails (SystemExit: no network). The run goes on, and is not") == 1
  assert said.count("fails") == 1
  made._thread.join(10)
  assert (("finish", logger.FAILED) in made.calls) == (method != "finish")
  assert [line["step"] for line in metrics_log.read_lines(tmp_path)] == [1, 2]


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("method", ["open", "metrics", "finish"])
def test_a_logger_that_hangs_is_left_behind(method, tmp_path, capsys, monkeypatch):
  monkeypatch.setattr(logger, "PATIENCE", 0.0)
  monkeypatch.setattr(Fake, "hanging", threading.Event())
  made, writer = start(tmp_path, f"hanging {method}")
  writer.write(1, {"loss": 0.5})
  made.end(LoopState(1, None))
  writer.close()
  Fake.hanging.set()
  assert capsys.readouterr().out.count("Fake fails (it has not taken everything after 0 s)") == 1


@pytest.mark.usefixtures("plain")
def test_no_more_than_some_lines_wait_for_it(tmp_path, capsys, monkeypatch):
  monkeypatch.setattr(logger, "MAX_WAITING", 3)
  monkeypatch.setattr(Fake, "hanging", threading.Event())
  made, writer = start(tmp_path, "hanging open")
  for step in range(1, 9):
    writer.write(step, {"loss": 0.5})
  assert made._jobs.qsize() == 3
  monkeypatch.setattr(logger, "PATIENCE", 1.0)
  writer.close()
  Fake.hanging.set()
  assert made.waits == []
  assert capsys.readouterr().out.count("Fake fails (3 lines wait for it)") == 1


@pytest.mark.usefixtures("plain")
def test_full_disk(tmp_path, capsys, monkeypatch):
  monkeypatch.setattr(logger.files, "write_text", lambda *_: os.write(-1, b""))
  _, writer = start(tmp_path)
  writer.write(1, {"loss": 0.5})
  writer.close()
  assert "Fake fails (OSError: [Errno 9] Bad file descriptor)" in capsys.readouterr().out
  assert metrics_log.read_lines(tmp_path)


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize(
  ("end", "status"), [(None, "failed"), (False, "finished"), (True, "stopped")]
)
def test_how_it_ended(end, status, tmp_path):
  made, writer = start(tmp_path)
  writer.write(1, {"loss": 0.5})
  if end is not None:
    made.end(LoopState(1, None, stopping=end))
  writer.close()
  assert logged(made) == [1]
  assert made.calls[-1] == ("finish", status)


def lines(folder, begin, end, project="tests", *, killed=False, changed=()):
  """The steps that a start logs: the evaluation after `begin`, and the steps up to `end`."""
  made, writer = start(folder, project, step=begin, changed=changed)
  if begin:
    writer.write(begin, {"evaluation": 1.0})  # that was due when the run stopped
  for step in range(begin + 1, end + 1):
    writer.write(step, {"loss": float("nan")})
    writer.write(step, {"evaluation": 1.0})
  writer.close()
  if killed:
    known = logger.read(folder / "fake.json")
    (folder / "fake.json").write_text(json.dumps(known._replace(step=0, closed=False)._asdict()))
  return logged(made)


def twice(first, last):
  return [step for step in range(first, last + 1) for _ in range(2)]


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("killed", [False, True])
def test_steps_are_logged_once_however_often_they_are_repeated(killed, tmp_path):
  """From a checkpoint up to a kill, or an error."""
  assert lines(tmp_path, 0, 7, killed=killed) == twice(1, 7)
  assert lines(tmp_path, 4, 5, killed=False) == [4]
  assert lines(tmp_path, 4, 9, killed=killed) == [4, *twice(8, 9)]
  assert lines(tmp_path, 9, 9) == [9]


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("killed", [False, True])
def test_steps_of_other_settings_get_a_run_of_their_own(killed, tmp_path):
  change = ["config.schedule.learning_rate: 0.1 -> 0.2"]
  assert lines(tmp_path, 0, 7, killed=killed) == twice(1, 7)
  assert lines(tmp_path, 0, 3, killed=killed) == twice(1, 3)  # it had no checkpoint
  assert lines(tmp_path, 2, 4, changed=change) == [*twice(1, 2), 2, *twice(3, 4)]
  assert lines(tmp_path, 4, 5, changed=change) == [4, *twice(5, 5)]  # none is repeated


@pytest.mark.usefixtures("plain")
def test_lines_that_the_library_lacks_are_logged_by_the_next_start(tmp_path, monkeypatch):
  assert lines(tmp_path, 0, 2, "metrics") == []  # it fails
  monkeypatch.setattr(Fake, "_called", lambda self, *call: self.calls.append(call))
  assert lines(tmp_path, 2, 3, "metrics") == [*twice(1, 2), 2, *twice(3, 3)]
  assert lines(tmp_path, 3, 4, "metrics") == [3, *twice(4, 4)]
  assert lines(tmp_path, 4, 5, "another")[:2] == [1, 1]


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("fails_at", [3, 4])  # the training and the evaluation of step 2
@pytest.mark.parametrize("begin", [1, 2])
def test_so_is_the_second_line_of_a_step_alone(tmp_path, monkeypatch, fails_at, begin):
  taken = []

  def log_metrics(self, step, metrics):
    taken.append(step)
    if len(taken) == fails_at:
      raise OSError("no network")

  with monkeypatch.context() as patch:
    patch.setattr(Fake, "log_metrics", log_metrics)
    lines(tmp_path, 0, 2)
  missed = [2] * (5 - fails_at)
  again = [begin]  # its evaluation, as if it had been left to do
  assert lines(tmp_path, begin, 3) == (again + missed, missed + again)[begin == 2] + [3, 3]
  assert lines(tmp_path, 3, 4) == [3, 4, 4]


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("most", [logger.MAX_WAITING, 4])  # it ends, or too much waits
def test_lines_that_a_library_that_hangs_never_got_are_logged_by_the_next_start(
  tmp_path, monkeypatch, most
):
  reached, hanging = threading.Event(), threading.Event()

  def log_metrics(self, step, metrics):
    if step > 2:
      reached.set()
      hanging.wait(60)

  with monkeypatch.context() as patch:
    patch.setattr(logger, "PATIENCE", 0.0)
    patch.setattr(Fake, "log_metrics", log_metrics)
    _, writer = start(tmp_path)
    for step in range(1, 4):
      writer.write(step, {"loss": 0.5})
    assert reached.wait(60)
    patch.setattr(logger, "MAX_WAITING", most)
    for step in range(4, 9):
      writer.write(step, {"loss": 0.5})
    writer.close()
  assert lines(tmp_path, 8, 8) == [3, 4, 5, 6, 7, 8, 8]
  hanging.set()


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("project", ["open", "hanging open"])
def test_so_are_those_of_a_start_that_could_not_open_the_run(tmp_path, monkeypatch, project):
  """Also after one that was killed, which the library may be ahead of."""
  monkeypatch.setattr(Fake, "hanging", threading.Event())

  def lines_of(*steps, **options):
    with monkeypatch.context() as patch:
      patch.setattr(Fake, "_called", lambda self, *call: self.calls.append(call))
      return lines(tmp_path, *steps, project, **options)

  assert lines_of(0, 2, killed=True) == twice(1, 2)
  note = logger.Logger._note_last

  def note_late(self):
    time.sleep(0.2)
    note(self)

  with monkeypatch.context() as patch:
    patch.setattr(logger, "PATIENCE", 1.0)
    patch.setattr(logger.Logger, "_note_last", note_late)
    assert lines(tmp_path, 2, 4, project) == []
  assert lines_of(4, 5) == [*twice(3, 4), 4, *twice(5, 5)]
  Fake.hanging.set()


@pytest.mark.usefixtures("plain")
def test_what_a_slow_library_takes_late_is_logged_once(tmp_path, monkeypatch):
  """It goes on after too much waited for it, and the training after that."""
  reached, slow = threading.Event(), threading.Event()

  def log_metrics(self, step, metrics):
    reached.set()
    slow.wait(60)
    self._called("metrics", step, metrics)

  with monkeypatch.context() as patch:
    patch.setattr(logger, "MAX_WAITING", 3)
    patch.setattr(Fake, "log_metrics", log_metrics)
    made, writer = start(tmp_path)
    writer.write(1, {"loss": 0.5})
    assert reached.wait(60)
    for step in range(2, 9):
      writer.write(step, {"loss": 0.5})
    slow.set()
    made._thread.join(10)
    assert not made._thread.is_alive()  # it does not wait for the end of the run
    assert logger.read(tmp_path / "fake.json").step == 1  # also if the training is killed now
    assert made.calls[-1] == ("finish", logger.FAILED)
    writer.close()
  assert logged(made) == [1]
  assert lines(tmp_path, 8, 8) == [*range(2, 9), 8]


@pytest.mark.usefixtures("plain")
def test_another_project_gets_a_run_of_its_own(tmp_path):
  for project, known in (("a", ""), ("a", "new"), ("b", ""), ("b", "new")):
    made, writer = start(tmp_path, project)
    writer.close()
    assert made.calls[0] == ("open", known, tmp_path.name)


@pytest.mark.usefixtures("plain")
def test_a_copy_of_the_workdir_gets_a_run_of_its_own_and_one_that_was_moved_keeps_it(tmp_path):
  first, copy, moved = (tmp_path / name for name in ("first", "copy", "moved"))

  def known(folder):
    made, writer = start(folder)
    writer.close()
    return made.calls[0][1]

  first.mkdir()
  assert known(first) == ""
  shutil.copytree(first, copy)
  first.rename(moved)
  first.symlink_to(moved)
  assert known(first) == "new"
  first.unlink()
  assert known(moved) == "new"
  moved.rename(first)
  assert known(copy) == ""
  assert known(copy) == known(first) == "new"


@pytest.mark.parametrize("text", ["{", "[]", '{"run": 3}', '{"other": 3}'])
def test_a_damaged_file_is_named(text, tmp_path):
  (tmp_path / "fake.json").write_text(text)
  with pytest.raises(RunError, match=r"fake\.json is damaged.*remove it to log to a new run"):
    logger.read(tmp_path / "fake.json")


@pytest.mark.usefixtures("plain")
def test_nothing_is_opened_without_a_line_or_on_other_processes(tmp_path, monkeypatch):
  made, writer = start(tmp_path, left=False)  # all steps are done
  made.end(LoopState(0, None))
  writer.close()
  assert not made.calls
  monkeypatch.setattr(jax, "process_index", lambda: 1)
  made, writer = start(tmp_path, writer=NoWriter())
  made.end(LoopState(0, None))
  writer.close()
  assert not made.calls
  assert not made._thread


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_library_that_is_not_installed_is_named(name, monkeypatch):
  kind = registry.CALLBACKS[name]
  assert kind in switched_on(registry.CALLBACKS, Config(**{name: "x"}))
  assert kind not in switched_on(registry.CALLBACKS, Config())
  monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
  with pytest.raises(ConfigError, match=rf"pip install 'vit_jax\[{name}\]'"):
    kind.check(Config(), None)


def test_a_folder_of_its_name_is_no_library(tmp_path, monkeypatch):
  (tmp_path / "fake").mkdir()
  monkeypatch.syspath_prepend(tmp_path)
  with pytest.raises(ConfigError, match=r"config\.fake needs the library fake"):
    Fake.check(Config(), None)
  (tmp_path / "fake" / "__init__.py").touch()
  importlib.invalidate_caches()
  Fake.check(Config(), None)


def test_parameters_of_mlflow_stay_and_changes_become_tags(monkeypatch):
  made = fakes.Library("mlflow")
  monkeypatch.setitem(sys.modules, "mlflow", made.module)
  kind = registry.CALLBACKS["mlflow"]
  many = {f"setting.{number}": number for number in range(250)}
  one = kind.__new__(kind)
  run, _ = one.open_run("a", "", "run", many)
  one.open_run("a", run, "run", many | {"setting.3": 4, "new": True})
  (seen,) = made.runs.values()
  assert seen.settings == {key: str(value) for key, value in many.items()}
  assert seen.paths == {"changed.setting.3": "4", "changed.new": "True"}


def test_another_run_of_the_program_is_left_alone_and_a_sweep_names_its_own(monkeypatch):
  made, asked = fakes.Library("wandb"), []

  def init(*, id, settings, **options):
    asked.append(settings["reinit"])
    return fakes.WandBRun(made, fakes.Seen(), "of the sweep")

  made.module.init = init
  monkeypatch.setitem(sys.modules, "wandb", made.module)
  kind = registry.CALLBACKS["wandb"]
  run, _ = kind.__new__(kind).open_run("tests", "", "run", {})
  assert (run, asked) == ("of the sweep", ["create_new"])


@pytest.mark.parametrize("mode", ["online", "offline"])
def test_without_a_key_nobody_is_asked_for_one(mode, monkeypatch):
  made = fakes.Library("wandb")
  made.module.setup().settings.mode = mode
  made.module.login = lambda *, prompt: prompt
  monkeypatch.setitem(sys.modules, "wandb", made.module)
  refused = contextlib.nullcontext()
  if mode == "online":
    refused = pytest.raises(RunError, match="WANDB_API_KEY")
  kind = registry.CALLBACKS["wandb"]
  with refused:
    kind.open_run(types.SimpleNamespace(), "tests", "", "run", {})
