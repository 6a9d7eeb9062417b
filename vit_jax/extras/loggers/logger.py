"""What all loggers share: a thread, a file that names the run in the library, and what is logged.

The library works in a thread of its own, so that the training never waits for it, and whatever it
raises ends the logging alone.
"""

import abc
import contextlib
import importlib.util
import json
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar, NamedTuple

import jax

from vit_jax.config import ConfigError, RunError, to_dict
from vit_jax.config.parsing import flat
from vit_jax.extras.plots import curves
from vit_jax.extras.report.report import REPORT
from vit_jax.process import text
from vit_jax.process.text import one_line
from vit_jax.storage import files, metrics_log, workdir
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

ALL = 2**31 - 1  # lines of a step


class Place(NamedTuple):
  """A place among the lines of metrics.jsonl: after some lines of a step."""

  step: int = 0
  lines: int = ALL

  def after(self, step: int) -> "Place":
    """The place after one more line, of the same step or a later one."""
    if step == self.step:
      return Place(step, self.lines + 1)
    return Place(step, 1)


class Known(NamedTuple):
  """The run in the library, as WORKDIR/LIBRARY.json keeps it.

  Attributes:
    folder: the workdir, without links; in a copy of a workdir it still names the first one.
    project: the project that it is in.
    run: its identifier there; "": none yet.
    step: the last step that the library has.
    closed: whether `step` is exact: the last start was not killed while it logged.
    lines: the number of lines of `step` that the library has.
  """

  folder: str = ""
  project: str = ""
  run: str = ""
  step: int = 0
  closed: bool = True
  lines: int = ALL

  @property
  def place(self) -> Place:
    """After the last line that the library has."""
    return Place(self.step, self.lines)


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
    self._known = Known()
    self._before = Place()  # after the last line that the library has of earlier starts
    self._place = Place()  # after the last line of this start
    self._lines = session.writer.lines
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
    """Logs a line, unless an earlier start has logged it."""
    self._add(lambda: self._log_new(step, metrics))

  def picture(self, step, name, png):
    """Logs a picture, unless an earlier start has logged the line before it."""
    self._add(lambda: self._is_repeated() or self.log_picture(step, name, png))

  def end(self, moment):
    """Logs what the other callbacks have written at their end; nothing if nothing is logged."""
    if self._thread is None:
      return
    step = moment.step
    self._status = STOPPED if moment.stopping else FINISHED
    if not moment.stopping:
      self._add(lambda: self._log_pictures(step))
    last = self._session.checkpoints.last_step()
    self._add(lambda: self.log_paths(step, paths(self._session.folder, last)))

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

  def _add(self, job):
    if self._given_up:
      return
    if self._jobs.qsize() >= MAX_WAITING:
      self._give_up(f"{MAX_WAITING:,} lines wait for it")
      return
    self._begin()
    self._jobs.put(job)

  def _is_repeated(self) -> bool:
    """Whether an earlier start logged the last line; not an evaluation that was left to do."""
    return self._run.resume_point.step < self._place.step and self._place <= self._before

  def _work(self):
    try:
      self._open()
      self._log_missed()
      while not self._given_up and (job := self._jobs.get()):
        job()
      if self._given_up:
        self._note_last()
        self.finish(FAILED)
        return
      self.finish(self._status)
      self._note(closed=True)
    except BaseException as error:  # libraries also raise SystemExit; the training goes on
      self._give_up(f"{type(error).__name__}: {error}")
      with contextlib.suppress(BaseException):  # it may not even be open
        self.finish(FAILED)

  def _give_up(self, reason):
    if not self._given_up:
      said = f"{self.title} fails ({reason.rstrip('.')}). The run goes on, and is not logged there."
      self._session.writer.say(one_line(said))
    self._note_last()
    self._given_up = True  # last: the process may end now

  def _open(self):
    folder = self._session.folder
    here = str(files.real(folder.absolute()))
    known = read(self._path)
    if known.project != self._project or is_copy(known, here, self._path.name):
      known = Known()
    if not known.closed:
      known = known._replace(step=max(known.step, self._session.writer.reached), lines=ALL)
    if self._is_another_from(known.step):
      known = Known()
    settings = plain(to_dict(self._run.config))
    self._before = known.place
    self._known = known._replace(folder=here, project=self._project)
    run, place = self.open_run(self._project, known.run, folder.absolute().name, settings)
    self._known = self._known._replace(run=run)
    self._note(closed=False)
    self._session.writer.say(one_line(f"{self.title}: {place}"))

  def _is_another_from(self, logged: int) -> bool:
    """Whether steps up to `logged`, which the library has, may be other ones this time."""
    begun_at = self._run.resume_point.step
    return begun_at < logged and (not begun_at or bool(self._run.changed))

  def _note(self, *, closed: bool):
    if self._known.run:
      known = self._known._replace(closed=closed)
      files.write_text(self._path, json.dumps(known._asdict()) + "\n")

  def _note_last(self):
    """Notes the last step that the library has, which may lack lines that are written."""
    with contextlib.suppress(OSError):
      self._note(closed=True)

  def _log_missed(self):
    """Logs the lines of earlier starts that the library lacks."""
    if self._before.step > self._run.resume_point.step:
      return
    place = Place()
    for line in metrics_log.read_lines(self._session.folder)[: self._lines]:
      step = line.pop("step")
      place = place.after(step)
      if place > self._before and not self._given_up:
        self._log_line(step, text.with_numbers(line))

  def _log_new(self, step, metrics):
    self._place = self._place.after(step)
    if not self._is_repeated():
      self._log_line(step, metrics)

  def _log_line(self, step, metrics):
    self.log_metrics(step, metrics)
    if step >= self._known.step:
      self._known = self._known._replace(**self._known.place.after(step)._asdict())

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
  if tuple(map(type, known)) != (str, str, str, int, bool, int):
    raise RunError(f"{path} is damaged; remove it to log to a new run")
  return known


def is_copy(known: Known, here: str, name: str) -> bool:
  """Whether the workdir `here` was copied from another one that still has the file `name`."""
  if not known.folder:
    return False
  first = path_of(known.folder)
  return str(files.real(first)) != here and files.exists(first / name)


def plain(settings: Mapping) -> dict[str, bool | int | float | str]:
  """Recorded settings by their full names; lists as JSON."""
  return {
    key: value if isinstance(value, bool | int | float | str) else json.dumps(value)
    for key, value in flat(settings).items()
    if key not in ("origins", "derived")  # how settings came about
  }


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
