"""Describes runs: settings, data, model, training images."""

import contextlib
import csv
from collections.abc import Iterator, Mapping, Sequence

from vit_jax.config import Config, ConfigError, in_pixels, to_dict
from vit_jax.config.parsing import flat
from vit_jax.config.recipe_file import UNITS
from vit_jax.config.resolve import asked_of
from vit_jax.evaluation import catalogue
from vit_jax.evaluation.results import rows_of
from vit_jax.extras.report.document import Section, Table, TableCell, count
from vit_jax.extras.report.run import RecordedRun, side_by_side
from vit_jax.extras.report.scored_set import numbered
from vit_jax.extras.report.thumbnails import thumbnails
from vit_jax.process.text import shown
from vit_jax.recipes import cost
from vit_jax.storage.paths import Path
from vit_jax.storage.workdir import AUGMENTED, CLASSES, IMAGES, OPERATIONS

STRIP = 480  # pixels, the width of a row of images
MAX_SHOWN = 4  # runs whose training images are shown
NO_SETTINGS = ("origins", "derived")  # they tell where values came from


def section(runs: Sequence[RecordedRun]) -> Section:
  """What these runs were; of one run also all settings that differ from the defaults."""
  if len(runs) > 1:
    return Section("Settings", tables=[side_by_side("The runs", runs, facts)])
  tables = [side_by_side("The run", runs, facts)]
  if runs[0].config is not None:
    tables.append(of_one(runs[0].config))
  return Section("Settings", tables=tables)


def training_images(runs: Sequence[RecordedRun]) -> Section:
  """The training images of the first runs."""
  if len(runs) == 1:
    return images(runs[0], "Training images")
  shown = [images(run, run.name) for run in runs[:MAX_SHOWN]]
  return Section("Training images", sections=shown)


def images(run: RecordedRun, title: str) -> Section:
  """The training images that a run kept at its start, with their classes."""
  folder = run.folder / IMAGES
  classes = captions_in(folder / CLASSES)
  captions = {row: classes.get(row, "") for row in numbered(folder)}
  pictures = thumbnails(numbered(folder), captions, training_image_in_words)
  words = (
    "The first images of the first step, after they were cropped, flipped, resized and augmented. "
    "What happens inside the step, such as MixUp and CutMix, comes later."
  )
  steps = augmentation(folder / AUGMENTED)
  return Section(title, [words] * bool(pictures), pictures=pictures, sections=[steps])


def training_image_in_words(caption: str) -> str:
  """The text for readers who do not see a training image."""
  return f"A training image of {caption}." if caption else "A training image."


def augmentation(folder: Path) -> Section:
  """A row of training images for each operation of the augmentation."""
  names = captions_in(folder / OPERATIONS)
  pictures = thumbnails(numbered(folder), names, "Training images after {}.".format, side=STRIP)
  words = "The first images, each after one operation of config.data.augment alone."
  return Section("Augmentation", [words] * bool(pictures), pictures=pictures)


def captions_in(path: Path) -> dict[int, str]:
  """{row: text} of a CSV file; {} if it cannot be read, since images need no captions."""
  with contextlib.suppress(OSError, ValueError, csv.Error):
    return {int(row): text for row, text in rows_of(path, 2)}
  return {}


def differences(runs: Sequence[RecordedRun]) -> Section:
  """The settings that differ between runs."""
  known = [run for run in runs if run.config is not None]
  head = ["setting", *(run.name for run in known)]
  rows = differing([settings_of(run.config) for run in known])
  return Section("Differences", tables=[Table("Settings that differ", head, rows)])


def of_one(config: Config) -> Table:
  """The settings that differ from the defaults, as they were given."""
  asked = settings_of(asked_of(config))
  asked = {key: x for key, x in asked.items() if x or key.rpartition(".")[2] not in UNITS}
  rows = [
    (key, cells[1:]) for key, cells in differing([settings_of(Config()), asked]) if key in asked
  ]
  return Table(
    "All settings that differ from the defaults", ["setting", "value"], rows, folded=True
  )


def settings_of(config: Config) -> dict[str, object]:
  """The settings by dotted name."""
  return {key: x for key, x in flat(to_dict(config)).items() if key not in NO_SETTINGS}


def differing(columns: Sequence[Mapping[str, object]]) -> list[tuple[str, list[str]]]:
  """A row for each setting whose columns differ; "" where a column lacks it."""
  texts = [{key: shown(value) for key, value in column.items()} for column in columns]
  keys = dict.fromkeys(key for column in texts for key in column)
  rows = [(key, [column.get(key, "") for column in texts]) for key in keys]
  return [(key, cells) for key, cells in rows if len({*cells}) > 1]


def facts(run: RecordedRun) -> Iterator[tuple[str, TableCell | str]]:
  """(name, value) of everything known about a run."""
  yield "Workdir", str(run.folder)
  if run.config is not None:
    yield from of_settings(run.config)
  yield from of_data(run)
  if run.config is not None:
    yield "Image size", f"{in_pixels(run.config.data.image_size)} px"
  if before := run.fact("trained_on_before", list):
    title = "Trained on before"
    if run.config is not None and run.config.objective.teacher:
      title = "Weights or teacher trained on"
    yield title, "; ".join(map(str, before))
  changes = [f"after step {step:,}: {'; '.join(changed)}" for step, changed in run.changes()]
  yield "Settings changed", ", and ".join(changes)
  if run.config is not None:
    yield from of_model(run)


def of_settings(config: Config) -> Iterator[tuple[str, TableCell | str]]:
  """The settings that readers look for first."""
  yield "Learns", config.objective.kind.replace("_", " ")
  yield "Batch size", count(config.batch_size)
  yield "Learning rate", f"{config.schedule.learning_rate:g}"
  yield "Weight decay", f"{config.optimizer.weight_decay:g}"
  yield "Weights to start from", config.init_from
  training = config.data.training().values()
  yield "Training data", "; ".join(f"{each.source} {each.split}".strip() for each in training)
  specs = catalogue.asked_for(config).items()
  sets = [(name, spec.scored()) for name, spec in specs if spec.scores_head]
  yield "Evaluated on, in training", "; ".join(f"{n} ({s.source} {s.split})" for n, s in sets)


def of_data(run: RecordedRun) -> Iterator[tuple[str, TableCell | str]]:
  """The numbers of images and classes, and notes on images that were left out."""
  for key, title in (("training_images", "Training images"), ("classes", "Classes")):
    if number := run.fact(key, int):
      yield title, count(number)
  if notes := run.fact("data_notes", list):
    yield "Notes on the data", " ".join(map(str, notes))


def of_model(run: RecordedRun) -> Iterator[tuple[str, TableCell | str]]:
  """The model: name, parameters and multiply-adds."""
  yield "Model", cost.label(run.config.model)
  yield "Computes in", run.config.model.compute_dtype
  if attention := run.fact("attention", str):
    yield "Attention", {"cudnn": "cuDNN", "xla": "XLA"}.get(attention, attention)
  number = parameters(run)
  trained = run.fact("trained_parameters", int)
  yield "Parameters", "" if number is None else count(number)
  if trained is not None and trained != number:
    yield "Parameters trained", count(trained)
  macs = cost.forward_macs(run.config)
  yield "GMACs of an image", TableCell(f"{macs / 1e9:,.4g}", macs / 1e9)


def parameters(run: RecordedRun) -> int | None:
  """The number of parameters, by the newest start or else by the settings, which must be known.

  None: no start recorded it, and the run's teacher is gone.
  """
  recorded = run.fact("parameters", int)
  if recorded is not None:
    return recorded
  try:
    return sum(cost.parameters(run.config).values())
  except (ConfigError, OSError):
    return None
