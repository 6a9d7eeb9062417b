"""Describes runs: recipe, command, settings, data, model, devices, versions, training images."""

import contextlib
import csv
from collections.abc import Iterator, Mapping, Sequence

from vit_jax.config import Config, to_dict
from vit_jax.config.command_line import value_of
from vit_jax.config.recipe_file import UNITS
from vit_jax.config.resolve import asked_of
from vit_jax.evaluation import catalogue
from vit_jax.evaluation.results import rows_of
from vit_jax.extras.report.document import Section, Table, TableCell, count
from vit_jax.extras.report.run import RecordedRun, side_by_side
from vit_jax.extras.report.scored_set import numbered
from vit_jax.extras.report.thumbnails import thumbnails
from vit_jax.process.text import command as shell
from vit_jax.process.text import shown
from vit_jax.recipes import cost
from vit_jax.storage.paths import Path
from vit_jax.storage.workdir import AUGMENTED, CLASSES, IMAGES, OPERATIONS

STRIP = 480  # pixels, the width of a row of images
MAX_SHOWN = 4  # runs whose training images are shown
PREFIX = "config."


def section(runs: Sequence[RecordedRun]) -> Section:
  """The section that describes these runs."""
  caption = "The runs"
  if len(runs) == 1:
    caption = "The run"
  return Section(
    "What was run",
    tables=[side_by_side(caption, runs, facts)],
    sections=[Section("Settings", tables=settings(runs)), *map(images, runs[:MAX_SHOWN])],
  )


def images(run: RecordedRun) -> Section:
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
  return Section(
    f"Training images of {run.name}", [words] * bool(pictures), pictures, sections=[steps]
  )


def training_image_in_words(caption: str) -> str:
  """The text for readers who do not see a training image."""
  return f"A training image of {caption}." if caption else "A training image."


def augmentation(folder: Path) -> Section:
  """A row of training images for each operation of the augmentation."""
  names = captions_in(folder / OPERATIONS)
  pictures = thumbnails(numbered(folder), names, "Training images after {}.".format, side=STRIP)
  words = "The first images, each after one operation of config.data.augment alone."
  return Section("Augmentation", [words] * bool(pictures), pictures)


def captions_in(path: Path) -> dict[int, str]:
  """{row: text} of a CSV file; {} if it cannot be read, since images need no captions."""
  with contextlib.suppress(OSError, ValueError, csv.Error):
    return {int(row): text for row, text in rows_of(path, 2)}
  return {}


def settings(runs: Sequence[RecordedRun]) -> list[Table]:
  """The settings that differ between the runs; for one run, those that differ from the defaults."""
  known = [run for run in runs if run.config is not None]
  if len(runs) > 1:
    head = ["setting", *(run.name for run in known)]
    columns = [flat(to_dict(run.config)) for run in known]
    return [Table("Settings that differ", head, differing(columns))]
  if not known:
    return []
  return settings_of_one(known[0])


def settings_of_one(run: RecordedRun) -> list[Table]:
  """The settings that a run's command line names, and all that differ from the defaults."""
  recorded = flat(to_dict(run.config))
  defaults = flat(to_dict(Config()))
  asked = flat(to_dict(asked_of(run.config)))
  asked = {key: x for key, x in asked.items() if x or key.rpartition(".")[2] not in UNITS}
  return [
    Table(
      "Settings that the command line gives, in place of the recipe's",
      ["setting", "value"],
      [(key, [shown(recorded[key])]) for key in on_command_line(run) if key in recorded],
    ),
    Table(
      "All settings that differ from the defaults",
      ["setting", "value", "default"],
      [row for row in differing([asked, defaults]) if row[0] in asked],
      folded=True,
    ),
  ]


def flat(values: Mapping, prefix: str = "") -> dict[str, object]:
  """Nested settings by dotted name."""
  result = {}
  for key, value in values.items():
    if isinstance(value, Mapping):
      result |= flat(value, f"{prefix}{key}.")
    else:
      result[f"{prefix}{key}"] = value
  return result


def differing(columns: Sequence[Mapping[str, object]]) -> list[tuple[str, list[str]]]:
  """A row for each setting whose columns differ; "" where a column lacks it."""
  texts = [{key: shown(value) for key, value in column.items()} for column in columns]
  keys = dict.fromkeys(key for column in texts for key in column)
  rows = [(key, [column.get(key, "") for column in texts]) for key in keys]
  return [(key, cells) for key, cells in rows if len({*cells}) > 1]


def on_command_line(run: RecordedRun) -> Iterator[str]:
  """The settings that the command line of the newest start names, such as "batch_size"."""
  for argument in map(str, run.fact("command", list) or []):
    name = argument.partition("=")[0].lstrip("-")
    if argument.startswith("-") and name.startswith(PREFIX):
      yield name.removeprefix(PREFIX)


def facts(run: RecordedRun) -> Iterator[tuple[str, TableCell | str]]:
  """(name, value) of everything known about a run."""
  yield "Workdir", str(run.folder)
  yield from of_command(run)
  if run.config is not None:
    yield from of_settings(run.config)
  yield from of_data(run)
  if run.config is not None:
    yield "Image size", f"{run.config.data.image_size} px"
  if before := run.fact("trained_on_before", list):
    yield "Trained on before", "; ".join(map(str, before))
  changes = [f"after step {step:,}: {'; '.join(changed)}" for step, changed in run.changes()]
  yield "Settings changed", ", and ".join(changes)
  if run.config is not None:
    yield from of_model(run)
  yield from of_machine(run)


def of_command(run: RecordedRun) -> Iterator[tuple[str, TableCell | str]]:
  """The recipe and the command line of the newest start."""
  command = list(map(str, run.fact("command", list) or []))
  if not command:
    return
  yield "Recipe", value_of("config", command) or ""
  yield "Command", f"python -m vit_jax.main {shell(command[1:])}"
  yield "Started", ", ".join(str(start.get("time", "")) for start in run.starts[:1])
  if len(run.starts) > 1:
    yield "Starts", count(len(run.starts))


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
    yield "Attention of", {"cudnn": "cuDNN", "xla": "XLA"}.get(attention, attention)
  number = run.fact("parameters", int)
  trained = run.fact("trained_parameters", int)
  if number is None:
    number = sum(cost.parameters(run.config).values())
  yield "Parameters", count(number)
  if trained is not None and trained != number:
    yield "Parameters trained", count(trained)
  macs = cost.forward_macs(run.config)
  yield "GMACs of an image", TableCell(f"{macs / 1e9:,.4g}", macs / 1e9)


def of_machine(run: RecordedRun) -> Iterator[tuple[str, TableCell | str]]:
  """Devices, versions and the revision of the code."""
  number = run.fact("devices", int)
  kind = run.fact("device_kind", str)
  if number and kind:
    devices = f"{number:,} x {kind}"
    hosts = run.fact("hosts", int) or 1
    if hosts > 1:
      devices += f" on {hosts:,} hosts"
    yield "Devices", devices
  yield "System", run.fact("platform", str) or ""
  versions = run.fact("versions", dict) or {}
  yield "Versions", ", ".join(f"{name} {version}" for name, version in versions.items())
  yield "Git revision", run.fact("revision", str) or ""
