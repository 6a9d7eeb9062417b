"""What runs were: recipe, command, settings, data, model, devices, versions, training images."""

import contextlib
import csv
from collections.abc import Iterator, Mapping, Sequence

from vit_jax.config import Config, to_dict
from vit_jax.config.command_line import value_of
from vit_jax.config.overrides import UNITS
from vit_jax.config.resolve import asked_of
from vit_jax.evaluation import catalogue
from vit_jax.evaluation.details import rows_of
from vit_jax.extras.report.document import Section, Table, TableCell, count
from vit_jax.extras.report.run import RecordedRun, side_by_side
from vit_jax.extras.report.scored_set import numbered
from vit_jax.extras.report.thumbnails import thumbnails
from vit_jax.process.text import command as shell
from vit_jax.process.text import shown
from vit_jax.recipes import cost
from vit_jax.storage.paths import Path
from vit_jax.storage.starts import AUGMENTED, CLASSES, OPERATIONS
from vit_jax.storage.workdir import IMAGES

STRIP = 480  # pixels, the width of a row of images
MAX_SHOWN = 4  # runs of which training images are shown
PREFIX = "config."


def section(runs: Sequence[RecordedRun]) -> Section:
  """The section of runs."""
  return Section(
    "What was run",
    tables=[side_by_side("The run" if len(runs) == 1 else "The runs", runs, facts)],
    sections=[Section("Settings", tables=settings(runs)), *map(images, runs[:MAX_SHOWN])],
  )


def images(run: RecordedRun) -> Section:
  """The training images that a run kept at its start, with their classes."""
  folder = run.folder / IMAGES
  classes = captions_in(folder / CLASSES)
  captions = {row: classes.get(row, "") for row in numbered(folder)}
  alt = lambda caption: f"A training image of {caption}." if caption else "A training image."
  pictures = thumbnails(numbered(folder), captions, alt)
  words = (
    "The first images of the first step, after they were cropped, flipped, resized and augmented. "
    "What happens inside the step, such as MixUp and CutMix, comes later."
  )
  steps = augmentation(folder / AUGMENTED)
  return Section(
    f"Training images of {run.name}", [words] * bool(pictures), pictures, sections=[steps]
  )


def augmentation(folder: Path) -> Section:
  """A row of training images for each operation of the augmentation."""
  names = captions_in(folder / OPERATIONS)
  alt = lambda name: f"Training images after {name}."
  pictures = thumbnails(numbered(folder), names, alt, side=STRIP)
  words = "The first images, each after one operation of config.data.augment alone."
  return Section("Augmentation", [words] * bool(pictures), pictures)


def captions_in(path: Path) -> dict[int, str]:
  """{row: text} of a CSV file; {} if it cannot be read, as images can do without."""
  with contextlib.suppress(OSError, ValueError, csv.Error):
    return {int(row): text for row, text in rows_of(path, 2)}
  return {}


def settings(runs: Sequence[RecordedRun]) -> list[Table]:
  """What differs between the runs; of one run, what differs from its recipe and the defaults."""
  known = [run for run in runs if run.config is not None]
  columns = [flat(to_dict(run.config)) for run in known]
  if len(runs) > 1:
    head = ["setting", *(run.name for run in known)]
    return [Table("Settings that differ", head, differing(columns))]
  if not known:
    return []
  usual = flat(to_dict(Config()))
  asked = flat(to_dict(asked_of(known[0].config)))
  asked = {key: x for key, x in asked.items() if x or key.rpartition(".")[2] not in UNITS}
  return [
    Table(
      "Settings that the command line gives, in place of the recipe's",
      ["setting", "value"],
      [(key, [shown(columns[0][key])]) for key in on_command_line(runs[0]) if key in columns[0]],
    ),
    Table(
      "All settings that differ from the defaults",
      ["setting", "value", "default"],
      [row for row in differing([asked, usual]) if row[0] in asked],
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
  """A row for each setting that is not the same in all columns; "" where a column lacks it."""
  keys = dict.fromkeys(key for column in columns for key in column)
  cells = {key: [shown(column[key]) if key in column else "" for column in columns] for key in keys}
  return [(key, row) for key, row in cells.items() if len({*row}) > 1]


def on_command_line(run: RecordedRun) -> Iterator[str]:
  """The settings that the command line of the newest start names, such as "batch_size"."""
  for argument in map(str, run.fact("command", list) or []):
    name = argument.partition("=")[0].lstrip("-")
    if argument.startswith("-") and name.startswith(PREFIX):
      yield name.removeprefix(PREFIX)


def facts(run: RecordedRun) -> Iterator[tuple[str, TableCell | str]]:
  """(name, value) of what is known of a run."""
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
  """The settings that readers ask for first."""
  yield "Learns", config.objective.kind.replace("_", " ")
  yield "Batch size", count(config.batch_size)
  yield "Learning rate", f"{config.schedule.learning_rate:g}"
  yield "Weight decay", f"{config.optimizer.weight_decay:g}"
  yield "Weights to start from", config.init_from
  training = config.data.training().values()
  yield (
    "Training data",
    "; ".join(f"{each.source} {each.split}".strip() for each in training),
  )
  specs = catalogue.asked_for(config).items()
  sets = [(name, spec.scored()) for name, spec in specs if spec.scores_head]
  yield "Evaluated on, in training", "; ".join(f"{n} ({s.source} {s.split})" for n, s in sets)


def of_data(run: RecordedRun) -> Iterator[tuple[str, TableCell | str]]:
  """The numbers of images and classes, and what was left out."""
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
  number, trained = run.fact("parameters", int), run.fact("trained_parameters", int)
  if number is None:
    number = sum(cost.parameters(run.config).values())
  yield "Parameters", count(number)
  if trained is not None and trained != number:
    yield "Parameters trained", count(trained)
  macs = cost.forward_macs(run.config)
  yield "GMACs of an image", TableCell(f"{macs / 1e9:,.4g}", macs / 1e9)


def of_machine(run: RecordedRun) -> Iterator[tuple[str, TableCell | str]]:
  """Devices, versions and the revision of the code."""
  number, kind = run.fact("devices", int), run.fact("device_kind", str)
  if number and kind:
    hosts = run.fact("hosts", int) or 1
    yield "Devices", f"{number:,} x {kind}" + (f" on {hosts:,} hosts" if hosts > 1 else "")
  yield "System", run.fact("platform", str) or ""
  versions = run.fact("versions", dict) or {}
  yield "Versions", ", ".join(f"{name} {version}" for name, version in versions.items())
  yield "Git revision", run.fact("revision", str) or ""
