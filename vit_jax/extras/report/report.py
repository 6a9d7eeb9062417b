"""The report of one run, or of several side by side."""

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
from vit_jax.process.text import h_mm_ss, one_line
from vit_jax.storage import files, workdir
from vit_jax.storage.paths import Path
from vit_jax.training.loop import Callback
from vit_jax.weights import average

REPORT = "report.html"
MAX_RUNS = 40
MAX_DETAILED = 4  # runs whose evaluations are shown in detail


class Report(Callback):
  """Draws the curves and confusion matrices of a completed run, and writes its report."""

  @classmethod
  def evaluated(cls, folder):
    """Draws the confusion matrices after an evaluation without training."""
    with workdir.writing(folder):
      curves.confusions(folder)

  def end(self, moment):
    """Draws and writes everything, on the first process."""
    if moment.stopping or jax.process_index() != 0:
      return
    folder = self._session.folder
    with self._session.monitor.paused("plots"):
      with workdir.writing(folder):
        curves.curves(folder, catalogue.curve)
        curves.confusions(folder)
      if self._run.config.report:
        self._write(folder)

  def _write(self, folder):
    try:
      write([folder], folder / REPORT, inside=False)
    except Exception as error:  # the run is complete and saved: a report must not make it fail
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
  title = f"{len(runs)} runs compared"
  if len(runs) == 1:
    title = f"Run {runs[0].name}"
  sections = [
    summary(runs),
    outcome.section(runs, details(runs)),
    cost.section(runs),
    description.section(runs),
  ]
  if inside:
    sections += looks(runs)
  return document.html(title, sections)


def looks(runs: Sequence[RecordedRun]) -> list[Section]:
  """Looks inside the models of the first runs."""
  from vit_jax.extras.report import inside  # slow to import

  title = "What it looks like inside"
  if len(runs) == 1:
    return [inside.section(runs[0], title)]
  return [Section(title, sections=[inside.section(one, one.name) for one in runs[:MAX_DETAILED]])]


def summary(runs: Sequence[RecordedRun]) -> Section:
  """Each run in a sentence, and notes on what could not be read or shown."""
  named = [(one.name, in_words(one)) for one in runs]
  for one in runs:
    notes = (*best_before_the_end(one), *start_of_average(one), *one.notes)
    named += [(one.name, note) for note in notes]
  words = [text for _, text in named]
  if len(runs) > 1:
    words = [f"{name}: {text}" for name, text in named]
  if len(runs) > MAX_DETAILED:
    words.append(f"Pictures and single evaluations are shown of the first {MAX_DETAILED} runs.")
  return Section("In short", words=words)


def in_words(one: RecordedRun) -> str:
  """The model, the number of steps, the metrics and the time."""
  facts = []
  if one.config is not None:
    facts.append(one.config.model.name)
  planned = one.fact("steps", int)
  facts.append(f"{one.step:,} of {planned:,} steps" if planned else f"{one.step:,} steps")
  for key in catalogue.headlines(outcome.keys_of(one)):
    if points := outcome.points_of(one, key):
      facts.append(reached_in_words(one, key, *points[-1]))
  if seconds := sum(cost.account(one).values()):
    facts.append(f"time {h_mm_ss(seconds)}")
  return "; ".join(facts) + "."


def reached_in_words(one: RecordedRun, key: str, step: int, value: float) -> str:
  """The last value of a metric, and its step unless that is the run's last one."""
  when = "at the end" if step == one.step else f"after step {step:,}"
  text = f"{metric(key)} {outcome.value_in_words(key, value)} {when}"
  if one.averaged:
    text += f" ({average.in_words(True)})"
  return text


def best_before_the_end(one: RecordedRun) -> list[str]:
  """The best evaluation of a run with early stopping, unless it is the last one."""
  if not one.config:
    return []
  metric = one.config.early_stopping.metric
  points = outcome.points_of(one, metric)
  if not points:
    return []
  step, value = outcome.best(metric, points)
  last, _ = points[-1]
  if step == last:
    return []
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
  sections = []
  for each in runs[:MAX_DETAILED]:
    before = f"{each.name}: " if len(runs) > 1 else "Evaluation "
    sections += [set_section.section(scored, before) for scored in each.sets]
  return sections
