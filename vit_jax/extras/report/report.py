"""The report of a run, or of several side by side."""

import dataclasses
from collections.abc import Sequence

import jax

from vit_jax.config import ConfigError
from vit_jax.evaluation import catalogue
from vit_jax.extras.plots import curves
from vit_jax.extras.plots.labels import metric
from vit_jax.extras.report import cost, description, document, outcome, run, set_section
from vit_jax.extras.report.document import Section
from vit_jax.extras.report.run import RecordedRun
from vit_jax.process.text import one_line
from vit_jax.storage import files, workdir
from vit_jax.storage.metrics_log import clock
from vit_jax.storage.paths import Path
from vit_jax.training.callbacks import Session
from vit_jax.training.loop import Callback
from vit_jax.training.run import Run
from vit_jax.weights import average

REPORT = "report.html"
MAX_RUNS = 40
MAX_DETAILED = 4  # runs whose evaluations are shown in detail


class Report(Callback):
  """Draws the curves and confusion matrices of a run that has reached its end, and its report."""

  def __init__(self, run: Run, session: Session):
    self._session, self._wanted = session, run.config.report

  @classmethod
  def evaluated(cls, folder):
    """Draws the confusion matrices of an evaluation alone."""
    with workdir.writing(folder):
      curves.confusions(folder)

  def end(self, moment):
    """Draws them, on the first process."""
    if moment.stopping or jax.process_index() != 0:
      return
    folder = self._session.folder
    with self._session.monitor.paused("plots"):
      with workdir.writing(folder):
        curves.curves(folder, catalogue.curve)
        curves.confusions(folder)
      if self._wanted:
        self._write(folder)

  def _write(self, folder):
    try:
      write([folder], folder / REPORT, inside=False)
    except Exception as error:  # the run is done and saved: nothing here may make it fail
      reason = one_line(f"{type(error).__name__}: {error}")
      text = f"{folder / REPORT} cannot be written ({reason}). The run itself is complete."
      self._session.writer.say(text)


def write(folders: Sequence[Path], output: Path, *, inside: bool):
  """Writes the report of workdirs as a file.

  Args:
    folders: the workdirs.
    output: the file.
    inside: whether checkpoints are read, to show what the models look like inside.

  Raises:
    ConfigError: a folder is not a workdir, or there are too many.
    OSError: the file cannot be written.
  """
  files.write_text(output, html(folders, inside=inside))


def html(folders: Sequence[Path], *, inside: bool) -> str:
  """The report of workdirs as a page; arguments and errors as for `write`."""
  if len(folders) > MAX_RUNS:
    raise ConfigError(f"{len(folders)} workdirs are too many for a report; give up to {MAX_RUNS}.")
  runs = run.read_all(folders)
  title = f"Run {runs[0].name}" if len(runs) == 1 else f"{len(runs)} runs compared"
  sections = [
    summary(runs),
    outcome.section(runs, details(runs)),
    cost.section(runs),
    description.section(runs),
    *(looks(runs) if inside else []),
  ]
  return document.html(title, sections)


def looks(runs: Sequence[RecordedRun]) -> list[Section]:
  """What the models of few runs look like inside."""
  from vit_jax.extras.report import inside  # slow to import

  title, few = "What it looks like inside", runs[:MAX_DETAILED]
  if len(runs) == 1:
    return [inside.section(runs[0], title)]
  return [Section(title, sections=[inside.section(one, one.name) for one in few])]


def summary(runs: Sequence[RecordedRun]) -> Section:
  """Each run in a sentence, and what could not be read or shown."""
  several = len(runs) > 1
  words = [(one.name, in_words(one)) for one in runs]
  for one in runs:
    notes = (*best_before_the_end(one), *start_of_average(one), *one.notes)
    words += [(one.name, note) for note in notes]
  words = [f"{name}: {text}" if several else text for name, text in words]
  if len(runs) > MAX_DETAILED:
    words.append(f"Pictures and single evaluations are shown of the first {MAX_DETAILED} runs.")
  return Section("In short", words=words)


def in_words(one: RecordedRun) -> str:
  """The model, how far it was trained, what it reached and how long it took."""
  parts = [] if one.config is None else [one.config.model.name]
  planned = one.fact("steps", int)
  parts.append(f"{one.step:,}" + (f" of {planned:,}" if planned else "") + " steps")
  for key in catalogue.headlines(outcome.keys_of(one)):
    if points := outcome.points_of(one, key):
      step, value = points[-1]
      when = "at the end" if step == one.step else f"after step {step:,}"
      whose = f" ({average.in_words(True)})" * one.averaged
      parts.append(f"{metric(key)} {outcome.value_in_words(key, value)} {when}{whose}")
  seconds = sum(cost.account(one).values())
  parts += [f"time {clock(seconds)}"] if seconds else []
  return "; ".join(parts) + "."


def best_before_the_end(one: RecordedRun) -> list[str]:
  """The best evaluation of a run with early stopping, unless it is the last one."""
  metric = one.config.early_stopping.metric if one.config else ""
  points = outcome.points_of(one, metric)
  if not points or outcome.best(metric, points)[0] == points[-1][0]:
    return []
  (step, value), (last, _) = outcome.best(metric, points), points[-1]
  return [
    f"Early stopping looks at {metric}: the best value, {outcome.value_in_words(metric, value)}, "
    f"came after step {step:,} (checkpoints/{step}), not at the end, after step {last:,}."
  ]


def start_of_average(one: RecordedRun) -> list[str]:
  """Warns of an average that still holds much of the initial parameters."""
  if not (one.averaged and one.config):
    return []
  share = average.initial_share(dataclasses.asdict(one.config.optimizer), one.step)
  return list(filter(None, [average.warning(share)]))


def details(runs: Sequence[RecordedRun]) -> list[Section]:
  """The evaluations of the first runs in detail."""
  several = len(runs) > 1
  return [
    set_section.section(one, f"{each.name}: " if several else "Evaluation ")
    for each in runs[:MAX_DETAILED]
    for one in each.sets
  ]
