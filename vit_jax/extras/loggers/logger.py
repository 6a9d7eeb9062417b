"""What all loggers share: a thread, a file that names the run in the library, and what is logged.

The library works in a thread of its own, so that the training never waits for it, and whatever it
raises ends the logging alone.
"""

import abc
import importlib.util
import json
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar, NamedTuple

import jax

from vit_jax.config import ConfigError, RunError, to_dict
from vit_jax.extras.plots import curves
from vit_jax.extras.report.report import REPORT
from vit_jax.process.text import one_line
from vit_jax.storage import files, workdir
from vit_jax.storage.metrics_log import Follower
from vit_jax.storage.paths import Path, path_of
from vit_jax.training.loop import Callback

MAX_BYTES = 2**16  # of the file that names the run
MAX_PICTURE_BYTES = 2**26
MAX_WAITING = 10_000  # lines and pictures
PATIENCE = 30.0  # seconds that the end of a run waits for the library

FINISHED = "finished"
STOPPED = "stopped"  # by a signal; the next start goes on
FAILED = "failed"


class Known(NamedTuple):
  """The run in the library, as WORKDIR/LIBRARY.json keeps it.

  Attributes:
    folder: the workdir, without links; in a copy of a workdir it still names the first one.
    project: the project that it is in.
    run: its identifier there; "": none yet.
    step: lines up to this step were given to the library already.
  """

  folder: str = ""
  project: str = ""
  run: str = ""
  step: int = 0


class Logger(Callback, Follower, abc.ABC):
  """Logs a run: settings, lines of metrics, pictures, and paths of the checkpoint and the report.

  The methods `open_run` to `finish` call the library. They are called in one thread, in order, and
  may take their time and raise anything.

  Attributes:
    library: the library, which is also the name of the setting and of the extra in setup.py.
    title: the library's name in messages.
  """

  library: ClassVar[str]
  title: ClassVar[str]

  @abc.abstractmethod
  def open_run(self, project: str, known: str, name: str, settings: Mapping) -> tuple[str, str]:
    """Opens the run `known`, or a new one.

    Args:
      project: the project or experiment; it is made if there is none.
      known: the identifier of the run to go on with; "": a new one.
      name: what to call a new one.
      settings: of this start, by their full names.

    Returns:
      Its identifier, and where a person finds it.
    """

  @abc.abstractmethod
  def log_metrics(self, step: int, metrics: Mapping[str, float]):
    """Logs a line of metrics."""

  @abc.abstractmethod
  def log_picture(self, step: int, name: str, png: bytes):
    """Logs a picture, a PNG file."""

  @abc.abstractmethod
  def log_paths(self, step: int, paths: Mapping[str, str]):
    """Logs paths by what they lead to: checkpoint, report."""

  @abc.abstractmethod
  def finish(self, status: str):
    """Ends the logging of this start: FINISHED, STOPPED or FAILED."""

  def __init__(self, run, session):
    super().__init__(run, session)
    self._project = getattr(run.config, self.library)
    self._path = session.folder / f"{self.library}.json"
    self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
    self._thread: threading.Thread | None = None
    self._given_up = False
    self._status = FAILED
    self._logged = 0  # the last step that an earlier start has given to the library
    session.writer.follow(self)  # on the first process

  @classmethod
  def check(cls, config, device):
    """Refuses the setting if the library is not installed."""
    spec = importlib.util.find_spec(cls.library)
    if spec is None or spec.origin is None:  # a mere folder of this name has none
      raise ConfigError(
        f"config.{cls.library} needs the library {cls.library}, which is not installed: pip "
        f"install 'vit_jax[{cls.library}]'."
      )

  def start(self, moment):
    """Opens the run, on the first process."""
    if jax.process_index() == 0 and self._session.left:
      self._begin()

  def write(self, step, metrics):
    """Logs a line, unless an earlier start has logged its step."""
    self._add(step, lambda: self.log_metrics(step, metrics))

  def picture(self, step, name, png):
    """Logs a picture, unless an earlier start has logged its step."""
    self._add(step, lambda: self.log_picture(step, name, png))

  def end(self, moment):
    """Logs what the other callbacks have written at their end; nothing if nothing is logged."""
    if self._thread is None:
      return
    step = moment.step
    self._status = STOPPED if moment.stopping else FINISHED
    if not moment.stopping:
      self._add(step, lambda: self._log_pictures(step))
    last = self._session.checkpoints.last_step()
    self._add(step, lambda: self.log_paths(step, paths(self._session.folder, last)))

  def close(self):
    """Waits for the library, but not for ever."""
    if self._thread is None:
      return
    self._jobs.put(None)
    until = time.monotonic() + PATIENCE
    while self._thread.is_alive() and not self._given_up:
      if time.monotonic() > until:
        self._give_up(f"it has not taken everything after {PATIENCE:g} s")
        return
      self._session.watchdog.beat(f"{self.title} at the end")
      self._thread.join(timeout=1)

  def _begin(self):
    if self._thread is None:
      self._thread = threading.Thread(target=self._work, name=self.library, daemon=True)
      self._thread.start()

  def _add(self, step, job):
    """Gives the thread a job, unless an earlier start has done it: then the step is a repeat."""
    if self._given_up:
      return
    if self._jobs.qsize() >= MAX_WAITING:
      self._give_up(f"{MAX_WAITING:,} lines wait for it")
      return
    self._begin()
    self._jobs.put(lambda: self._is_repeated(step) or job())

  def _is_repeated(self, step) -> bool:
    return self._run.resume_point.step < step <= self._logged

  def _work(self):
    try:
      self._open()
      while job := self._jobs.get():
        job()
      self.finish(self._status)
    except BaseException as error:  # libraries also raise SystemExit; the training goes on
      self._give_up(f"{type(error).__name__}: {error}")

  def _give_up(self, reason):
    if self._given_up:
      return
    self._given_up = True
    text = f"{self.title} fails ({reason.rstrip('.')}). The run goes on, and is not logged there."
    self._session.writer.say(one_line(text))

  def _open(self):
    folder = self._session.folder
    here = str(files.real(folder.absolute()))
    known = read(self._path)
    if known.project != self._project or is_copy(known, here, self._path.name):
      known = Known()
    settings = flat(to_dict(self._run.config))
    run, place = self.open_run(self._project, known.run, folder.absolute().name, settings)
    if known.run:
      self._logged = max(known.step, self._session.writer.reached)
    known = Known(here, self._project, run, self._logged)
    files.write_text(self._path, json.dumps(known._asdict()) + "\n")
    self._session.writer.say(one_line(f"{self.title}: {place}"))

  def _log_pictures(self, step):
    for name, path in pictures(self._session.folder):
      if files.is_file(path):
        self.log_picture(step, name, files.read_bytes(path, most=MAX_PICTURE_BYTES))


def read(path: Path) -> Known:
  """The run that a file names.

  Raises:
    RunError: the file is damaged.
    OSError: it cannot be read.
  """
  if not files.exists(path):
    return Known()
  try:
    known = Known(**files.read_json(path, most=MAX_BYTES))
  except (TypeError, ValueError) as error:
    raise RunError(f"{path} is damaged: {error}; remove it to log to a new run") from error
  if tuple(map(type, known)) != (str, str, str, int):
    raise RunError(f"{path} is damaged; remove it to log to a new run")
  return known


def is_copy(known: Known, here: str, name: str) -> bool:
  """Whether the workdir `here` was copied from another one that still has the file `name`."""
  return known.folder not in ("", here) and files.exists(path_of(known.folder) / name)


def flat(settings: Mapping, prefix: str = "") -> dict[str, bool | int | float | str]:
  """Recorded settings by their full names, such as "model.depth"; lists as JSON."""
  result = {}
  for key, value in settings.items():
    if isinstance(value, Mapping):
      result |= flat(value, f"{prefix}{key}.")
    elif isinstance(value, bool | int | float | str):
      result[prefix + key] = value
    elif f"{prefix}{key}" not in ("origins", "derived"):  # how settings came about
      result[prefix + key] = json.dumps(value)
  return result


def pictures(folder: Path) -> Iterator[tuple[str, Path]]:
  """(name, file) of the pictures that a complete run has drawn; a file may be missing."""
  yield "curves", folder / curves.CURVES
  sets = workdir.details(folder)
  for path in sets:
    if path.parent == sets[0].parent:  # of the newest evaluation
      yield f"{path.name}/confusion", path / curves.CONFUSION


def paths(folder: Path, last: int) -> dict[str, str]:
  """The absolute paths of the checkpoint of step `last` and of the report, if they exist."""
  folder = folder.absolute()
  found = {}
  if last:
    found["checkpoint"] = str(folder / workdir.CHECKPOINTS / str(last))
  if files.is_file(folder / REPORT):
    found["report"] = str(folder / REPORT)
  return found
