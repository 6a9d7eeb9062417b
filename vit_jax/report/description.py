"""What runs were: recipe, command, data, model, devices, versions and some training images."""

import shlex
from collections.abc import Iterator, Sequence

from vit_jax.config.command_line import value_of
from vit_jax.evaluation import catalogue
from vit_jax.recipes import cost
from vit_jax.report.document import Section, TableCell
from vit_jax.report.run import RecordedRun
from vit_jax.report.settings import tables
from vit_jax.report.tables import side_by_side
from vit_jax.report.training_images import pictures

MAX_SHOWN = 4  # runs of which training images are shown


def section(runs: Sequence[RecordedRun]) -> Section:
  """The section of runs."""
  return Section(
    "What it was" if len(runs) == 1 else "What they were",
    tables=[side_by_side("The run" if len(runs) == 1 else "The runs", runs, facts)],
    sections=[Section("Settings", tables=tables(runs)), *map(images, runs[:MAX_SHOWN])],
  )


def images(run: RecordedRun) -> Section:
  """The training images of a run."""
  shown = pictures(run)
  said = (
    "The first images of the first step, after they were cropped, flipped and resized. What "
    "happens inside the step, such as MixUp, comes later."
  )
  return Section(f"Training images of {run.name}", [said] if shown else [], pictures=shown)


def facts(run: RecordedRun) -> Iterator[tuple[str, TableCell | str]]:
  """(name, value) of what is known of a run."""
  yield "Workdir", str(run.folder)
  yield from of_command(run)
  yield from of_settings(run)
  yield from of_data(run)
  yield from of_the_past(run)
  yield from of_model(run)
  yield from of_machine(run)


def of_command(run: RecordedRun) -> Iterator[tuple[str, TableCell | str]]:
  """The recipe and the command line of the newest start."""
  command = run.fact("command", list)
  if not command:
    return
  command = list(map(str, command))
  recipe = value_of("config", command)
  if recipe:
    yield "Recipe", recipe
  yield "Command", f"python -m vit_jax.main {shlex.join(command[1:])}"
  yield "Started", ", ".join(str(start.get("time", "")) for start in run.starts[:1])
  if len(run.starts) > 1:
    yield "Starts", TableCell(f"{len(run.starts):,}", len(run.starts))


def of_settings(run: RecordedRun) -> Iterator[tuple[str, TableCell | str]]:
  """The settings that readers ask for first."""
  if run.config is None:
    return
  yield "Learns", run.config.objective.kind.replace("_", " ")
  yield "Batch size", TableCell(f"{run.config.batch_size:,}", run.config.batch_size)
  yield "Learning rate", f"{run.config.schedule.learning_rate:g}"
  yield "Weight decay", f"{run.config.optimizer.weight_decay:g}"
  if run.config.init_from:
    yield "Weights to start from", run.config.init_from


def of_data(run: RecordedRun) -> Iterator[tuple[str, TableCell | str]]:
  """The data: sources, numbers of images and classes."""
  if run.config is not None:
    data = run.config.data
    told = [f"{one.source} {one.split}".strip() for one in data.training().values()]
    yield "Training data", "; ".join(told)
    specs = catalogue.asked_for(run.config).items()
    sets = {name: spec.scored() for name, spec in specs if spec.scores_head}
    yield (
      "Evaluated on, in training",
      "; ".join(f"{n} ({one.source} {one.split})" for n, one in sets.items()),
    )
  for key, title in (("training_images", "Training images"), ("classes", "Classes")):
    if count := run.fact(key, int):
      yield title, TableCell(f"{count:,}", count)
  if notes := run.fact("data_notes", list):
    yield "Notes on the data", " ".join(map(str, notes))
  if run.config is not None:
    yield "Image size", f"{run.config.data.image_size} px"


def of_the_past(run: RecordedRun) -> Iterator[tuple[str, TableCell | str]]:
  """What the parameters saw before the newest start: other data, and other settings."""
  if before := run.fact("trained_on_before", list):
    yield "Trained on before", "; ".join(map(str, before))
  told = [f"after step {step:,}: {'; '.join(changed)}" for step, changed in run.changes()]
  if told:
    yield "Settings changed", ", and ".join(told)


def of_model(run: RecordedRun) -> Iterator[tuple[str, TableCell | str]]:
  """The model: name, parameters and multiply-adds."""
  if run.config is None:
    return
  yield "Model", cost.label(run.config.model)
  yield "Computes in", run.config.model.compute_dtype
  count, trained = run.fact("parameters", int), run.fact("trained_parameters", int)
  if count is None:
    count = sum(cost.parameters(run.config).values())
  yield "Parameters", TableCell(f"{count:,}", count)
  if trained is not None and trained != count:
    yield "Parameters trained", TableCell(f"{trained:,}", trained)
  macs = cost.forward_macs(run.config)
  yield "GMACs of an image", TableCell(f"{macs / 1e9:,.4g}", macs / 1e9)


def of_machine(run: RecordedRun) -> Iterator[tuple[str, TableCell | str]]:
  """Devices, versions and the revision of the code."""
  count, kind = run.fact("devices", int), run.fact("device_kind", str)
  if count and kind:
    hosts = run.fact("hosts", int) or 1
    yield "Devices", f"{count:,} x {kind}" + (f" on {hosts:,} hosts" if hosts > 1 else "")
  if system := run.fact("platform", str):
    yield "System", system
  if versions := run.fact("versions", dict):
    yield "Versions", ", ".join(f"{name} {version}" for name, version in versions.items())
  if revision := run.fact("revision", str):
    yield "Git revision", revision
