"""The first screen: the result of a run, what it was, and how it went."""

import dataclasses
from collections.abc import Iterator, Sequence

from vit_jax.config import in_pixels
from vit_jax.extras.report import cost, description, headline, outcome
from vit_jax.extras.report.document import Lead, Picture, Table, TableCell, count
from vit_jax.extras.report.run import RecordedRun
from vit_jax.process.text import h_mm_ss
from vit_jax.recipes import cost as formulas
from vit_jax.storage import checkpoint
from vit_jax.storage.workdir import CHECKPOINTS
from vit_jax.weights.card import average_warning


def of_run(run: RecordedRun, predictions: Sequence[Picture], note: str) -> Lead:
  """The first screen of a run, with pictures of predictions and a note about them."""
  lead = Lead(
    facts=[*facts(run)],
    predictions=predictions,
    note=note,
    chart=outcome.progress([run], headline.key_of(run)),
    notes=notes(run),
  )
  found = headline.headline(run)
  if found is None:
    return lead
  words = headline.in_words(run, found)
  return dataclasses.replace(lead, value=found.number, whose=found.of_images, words=words)


def facts(run: RecordedRun) -> Iterator[tuple[str, str]]:
  """(name, text) of the model, the data, the training, the time and the computation."""
  if run.config is not None:
    model = formulas.label(run.config.model)
    if (parameters := description.parameters(run)) is not None:
      model += f", {parameters:,} parameters"
    yield "Model", model
    yield "Data", data(run)
  yield "Training", training(run)
  if seconds := cost.seconds_of(run):
    share = cost.account(run).get("steps", 0) / seconds
    yield "Time", f"{cost.spelled(seconds)}{devices(run)}, {share:.0%} of it in steps"
  if number := cost.flops(run):
    value, prefix = cost.prefixed(number)
    yield "Cost", f"{value:,.3g} {prefix}FLOPs in all steps, by the model's shape"


def data(run: RecordedRun) -> str:
  """The training images: sources, number, classes and size; and the weights to start from."""
  sources = run.config.data.training().values()
  words = [" + ".join(f"{each.source} {each.split}".strip() for each in sources)]
  for key, name in (("training_images", "images"), ("classes", "classes")):
    if number := run.fact(key, int):
      words.append(f"{number:,} {name}")
  words.append(f"{in_pixels(run.config.data.image_size)} px")
  if run.config.init_from:
    words.append(f"starting from {run.config.init_from}")
  return ", ".join(words)


def training(run: RecordedRun) -> str:
  """The steps, the batch size and the epochs."""
  steps = f"{run.step:,} steps"
  planned = run.fact("steps", int)
  if planned and planned != run.step:
    steps = f"{run.step:,} of {planned:,} steps"
  if run.config is not None:
    steps += f" {of_images(run)}"
  if epochs := max(cost.values_of(run, "data/epoch"), default=0):
    steps += f", {epochs:,.3g} epochs"
  return steps


def of_images(run: RecordedRun) -> str:
  """The images of each step; those of all steps, if its starts had different batch sizes."""
  size = run.config.batch_size
  lines = [line for line in run.lines if "data/images" in line]
  if any(line["data/images"] != line["step"] * size for line in lines):
    return f"with {cost.images_seen(run):,} images"
  return f"of {size:,} images"


def devices(run: RecordedRun) -> str:
  """The devices of the newest start, and the number of starts; "" if neither is worth a word."""
  words = ""
  number = run.fact("devices", int)
  kind = run.fact("device_kind", str)
  if number and kind:
    words = f" on {number:,} x {kind}"
  if len(run.starts) > 1:
    words += f", in {len(run.starts):,} starts"
  return words


def notes(run: RecordedRun) -> list[str]:
  """What readers must not miss: the choice of early stopping, a young average, damaged files."""
  return [*best_before_the_end(run), *start_of_average(run), *run.notes]


def best_before_the_end(run: RecordedRun) -> list[str]:
  """The best evaluation of a run with early stopping, unless it is the last one."""
  if not run.config:
    return []
  metric = run.config.early_stopping.metric
  points = outcome.points_of(run, metric)
  if not points:
    return []
  step, value = outcome.best(metric, points)
  last, _ = points[-1]
  if step == last:
    return []
  place = ""
  if step in checkpoint.available(run.folder):
    place = f" ({CHECKPOINTS}/{step})"
  return [
    f"Early stopping looks at {metric}: the best value, {outcome.value_in_words(metric, value)}, "
    f"came after step {step:,}{place}, not at the end, after step {last:,}."
  ]


def start_of_average(run: RecordedRun) -> list[str]:
  """Warns of an average that still holds much of the initial parameters."""
  if not (run.averaged and run.config):
    return []
  total = run.fact("steps", int) or run.step
  warning = average_warning(dataclasses.asdict(run.config.optimizer), run.step, total)
  return list(filter(None, [warning]))


def of_several(runs: Sequence[RecordedRun]) -> Lead:
  """The first screen of several runs: results, curves, and what readers must not miss."""
  chart = outcome.progress(runs, headline.key_of(runs[0]))
  words = [f"{run.name}: {note}" for run in runs for note in notes(run)]
  return Lead(table=overview(runs), chart=chart, notes=words)


def overview(runs: Sequence[RecordedRun]) -> Table:
  """A row for each run: the headline metric of the first one, steps, time and computation."""
  name = outcome.name_of(headline.key_of(runs[0]))
  _, prefix = cost.prefixed(max(map(cost.flops, runs)))
  size = {prefix: power for power, prefix in cost.PREFIXES}.get(prefix, 1)
  rows = []
  for run in runs:
    seconds = cost.seconds_of(run)
    number = cost.flops(run) / size
    cells = [
      dict(outcome.last_values(run)).get(name, ""),
      count(run.step),
      TableCell(h_mm_ss(seconds), seconds) if seconds else "",
      TableCell(f"{number:,.3g}", number) if number else "",
    ]
    rows.append((run.name, cells))
  head = ["run", name, "steps", "time, h:mm:ss", f"{prefix}FLOPs"]
  return Table("At the end of each run", head, rows)
