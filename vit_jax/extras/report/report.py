"""The report of one run, or of several side by side."""

import dataclasses
from collections.abc import Mapping, Sequence

import jax

from vit_jax.config import ConfigError
from vit_jax.evaluation import catalogue
from vit_jax.extras.plots import curves
from vit_jax.extras.report import (
  cost,
  description,
  document,
  lead,
  outcome,
  predictions,
  reproduce,
  run,
  set_section,
)
from vit_jax.extras.report.document import Picture, Section
from vit_jax.extras.report.run import RecordedRun
from vit_jax.process.text import one_line
from vit_jax.storage import files, workdir
from vit_jax.storage.paths import Path
from vit_jax.training.loop import Callback

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
    if moment.stopping or jax.process_index() != 0 or not self._run.config.report:
      return
    folder = self._session.folder
    with self._session.monitor.paused("plots"):
      with workdir.writing(folder):
        curves.curves(folder, catalogue.curve)
        curves.confusions(folder)
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
  looks = [NO_LOOK] * len(runs)
  if inside:
    looks = [look(one) for one in runs[:MAX_DETAILED]]
  if len(runs) == 1:
    return of_one(runs[0], looks[0])
  return of_several(runs, looks)


@dataclasses.dataclass(frozen=True)
class Look:
  """What a checkpoint shows.

  Attributes:
    section: pictures of the inside of the model.
    overlays: attention over images of the set that is shown, JPEG files by row.
    colours: what the colours of the overlays mean.
  """

  section: Section
  overlays: Mapping[int, bytes]
  colours: str = ""


NO_LOOK = Look(Section(""), {})


def look(one: RecordedRun) -> Look:
  """Looks inside the model of a run."""
  from vit_jax.extras.report import inside  # slow to import

  opened = inside.opened(one)
  overlays = {}
  colours = ""
  if scored := predictions.set_of(one):
    overlays = inside.overlays(opened, scored, predictions.rows_of(scored))
  if overlays:
    colours = "The more orange a part, the more attention it gets (Attention Rollout, Figure 6)."
  return Look(inside.section(one, opened, one.name), overlays, colours)


def of_one(one: RecordedRun, seen: Look) -> str:
  """The page about a run."""
  shown, note = predicted(one, seen)
  sections = [
    outcome.section([one], details(one, "Evaluation ")),
    outcome.curves([one]),
    cost.section([one]),
    dataclasses.replace(seen.section, title="Inside the model"),
    description.training_images([one]),
    reproduce.section([one]),
    description.section([one]),
  ]
  return document.html(f"Run {one.name}", lead.of_run(one, shown, note), sections)


def of_several(runs: Sequence[RecordedRun], looks: Sequence[Look]) -> str:
  """The page that compares runs; pictures and single evaluations are those of the first ones."""
  first = runs[:MAX_DETAILED]
  scored = []
  for one, seen in zip(first, looks, strict=False):
    pictures, note = predicted(one, seen)
    scored.append(Section(f"Predictions of {one.name}", [note] * bool(note), pictures=pictures))
    scored += details(one, f"{one.name}: ")
  sections = [
    description.differences(runs),
    outcome.section(runs, scored),
    outcome.curves(runs),
    cost.section(runs),
    Section("Inside the models", sections=[seen.section for seen in looks]),
    description.training_images(runs),
    reproduce.section(runs),
    description.section(runs),
  ]
  title = f"{len(runs)} runs compared"
  if len(runs) > MAX_DETAILED:
    title += f"; the first {MAX_DETAILED} with pictures"
  return document.html(title, lead.of_several(runs), sections)


def predicted(one: RecordedRun, seen: Look) -> tuple[list[Picture], str]:
  """Pictures of predictions, and a note about them; ([], "") if the run kept no images."""
  scored = predictions.set_of(one)
  if scored is None:
    return [], ""
  pictures = predictions.pictures(scored, seen.overlays)
  return pictures, predictions.note(scored, pictures, seen.colours)


def details(one: RecordedRun, before: str) -> list[Section]:
  """The evaluations of a run in detail; `before` begins their titles."""
  return [set_section.section(scored, f"{before}{scored.name}") for scored in one.sets]
