"""All evaluations of a run, inside the training loop or with --mode=evaluate."""

import functools
import pathlib
from collections.abc import Mapping

import jax

from vit_jax.config import RunError
from vit_jax.data import datasets
from vit_jax.data.batches import Reader
from vit_jax.data.images import BadImage
from vit_jax.devices import watchdog
from vit_jax.evaluation import evaluated_model, registry
from vit_jax.evaluation.details import MAX_BYTES
from vit_jax.evaluation.opening import Evaluations
from vit_jax.evaluation.spec import EvalContext, NothingCounts, Result
from vit_jax.plots import tiles
from vit_jax.process import json_text
from vit_jax.storage import files, metrics_log, workdir
from vit_jax.weights import average

FIGURES = "figures.json"
DATASET = "dataset"  # beside the metrics of a set: its images, in words
TOO_LITTLE_MEMORY = "Lower config.batch_size, or split the parameters by config.mesh.fsdp."


def results(evaluations: Evaluations, context: EvalContext, params) -> list[tuple[str, Result]]:
  """The name and the result of each evaluation, for parameters that are on the devices.

  Raises:
    EvaluationInterrupted: the run was asked to stop.
    RunError: a set cannot be read, or none of its images counts.
  """
  found = []
  for name, opened in evaluations.opened:
    try:
      with jax.transfer_guard("disallow"):
        found.append((name, opened.score(context, params)))
    except (BadImage, OSError, NothingCounts) as error:
      raise RunError(f"Evaluation set {name!r} cannot be scored: {error}") from error
  return found


def metrics_of(found: list[tuple[str, Result]]) -> dict[str, float]:
  """All metrics as {"NAME/top1": ...}."""
  return {f"{name}/{key}": value for name, one in found for key, value in one.metrics.items()}


def evaluate(
  read: evaluated_model.Scored,
  evaluations: Evaluations,
  reader: Reader,
  folder: pathlib.Path,
  *,
  stall_seconds: float,
) -> dict[str, float]:
  """Evaluates parameters, prints the metrics and writes WORKDIR/evaluation.json.

  Sets whose images have one label each also get a folder WORKDIR/evaluation/NUMBER/NAME with all
  predictions, the accuracy of each class and the confusion matrix.

  Raises:
    RunError: a set cannot be read, or the folder cannot be written.
  """
  if jax.process_index() == 0:
    with workdir.writing(folder):
      files.make_folder(folder)
    print(datasets.table(evaluations.datasets))
    print(scored_in_words(read))
    if read.resized or read.side not in (0, read.settings.data.image_size):
      print(other_size_in_words(read))
  if read.head.names:
    evaluations = evaluations.of_head(read.head.names)
  with watchdog.of_evaluation(stall_seconds, folder) as watching:
    stop = functools.partial(went_on, watching)
    context = EvalContext(
      read.model, read.settings.loss, reader, read.representation, stop, detailed=True
    )
    with watching.guarded(too_little=TOO_LITTLE_MEMORY):
      found = results(evaluations, context, evaluated_model.put(read.params, reader.mesh))
  if jax.process_index() == 0:
    report(read, found, folder)
  return metrics_of(found)


def report(read: evaluated_model.Scored, found: list[tuple[str, Result]], folder: pathlib.Path):
  """Writes and prints the results.

  Raises:
    WriteError: the folder cannot be written.
  """
  metrics, result = metrics_of(found), folder / workdir.EVALUATION
  with workdir.writing(folder):
    details = write_details(folder, found, read.origin)
    files.write_text(result, json_text.written(read.origin | metrics) + "\n")
  print(f"{origin_in_words(read.origin)}  {registry.in_words(metrics)}{notes(found)}")
  print(f"Written to {result}" + (f", details to {details}" if details else ""))


def write_details(
  folder: pathlib.Path, found: list[tuple[str, Result]], origin: dict[str, int | str]
) -> pathlib.Path | None:
  """Writes metrics, tables, plots and pictures of an evaluation to a folder of its own.

  Args:
    folder: the workdir.
    found: the results.
    origin: which parameters were scored, the first entries of each figures.json.

  Returns:
    WORKDIR/evaluation/NUMBER, with a folder for each set; None if no set has details.

  Raises:
    OSError: the folder cannot be written to.
  """
  detailed = [(name, one) for name, one in found if one.write or one.pictures]
  if not detailed:
    return None

  def fill(partial):
    for name, one in detailed:
      write_set(partial / name, one, origin)

  return workdir.write_details(folder, fill)


def write_set(folder: pathlib.Path, result: Result, origin: dict[str, int | str]):
  """Writes the details of one set into a new folder; arguments as for `write_details`."""
  files.make_folder(folder)
  origin = origin | {DATASET: result.dataset}
  files.write_text(folder / FIGURES, json_text.written(origin | result.metrics) + "\n")
  if result.write:
    result.write(folder, whose(folder.name, origin))
  for name, picture in result.pictures.items():
    files.write_bytes(folder / f"{name}.png", tiles.png(picture))


def notes(found: list[tuple[str, Result]]) -> str:
  """What belongs to the metrics, one line for each evaluation that has a note."""
  return "".join(f"\n{name}: {one.note}" for name, one in found if one.note)


def recorded(folder: pathlib.Path) -> dict:
  """The figures.json in the folder of a set, {} if it is not there.

  Raises:
    OSError, ValueError: it cannot be read.
  """
  path = folder / FIGURES
  if not files.is_file(path):
    return {}
  try:
    return json_text.with_numbers(files.read_json(path, most=MAX_BYTES))
  except ValueError as error:
    raise ValueError(f"{path} does not hold figures of an evaluation ({error})") from error


def whose(name: str, origin: Mapping[str, object]) -> str:
  """The name of a set, and `origin_in_words` if that is known."""
  return ": ".join(filter(None, [name, origin_in_words(origin)]))


def origin_in_words(origin: Mapping[str, object]) -> str:
  """Says which images and parameters metrics are of, such as "digits test, step 40"."""
  said = [str(origin.get(DATASET, ""))]
  said += [f"{key} {origin[key]}" for key in ("step", "weights") if key in origin]
  said += [average.in_words(True)] * (origin.get(registry.AVERAGE) is True)
  return ", ".join(filter(None, said))


def scored_in_words(read: evaluated_model.Scored) -> str:
  """Says which weights are scored, and how images are prepared for them."""
  said = f"{origin_in_words(read.origin)}: {type(read.model).__name__}, images {read.prepared}"
  return f"{said}; classes: {read.head.said}" if read.head.said else said


def other_size_in_words(read: evaluated_model.Scored) -> str:
  """Says that the weights were trained on images of another size than they are scored on."""
  side = read.settings.data.image_size
  said = f"These weights were trained at another image size than config.data.image_size={side}"
  said += f"; their position embeddings were interpolated: {read.resized}." if read.resized else "."
  if not read.side:
    return said
  return f"{said} To score them at their own size: --config.data.image_size={read.side}."


def went_on(watching: watchdog.Watchdog) -> bool:
  """Tells the watchdog that a batch is done; False: --mode=evaluate never stops half-way."""
  watching.beat("the evaluation")
  return False


def steps_in(folder: pathlib.Path) -> frozenset[int]:
  """The steps whose evaluation is already in metrics.jsonl."""
  return frozenset(line["step"] for line in evaluations_in(folder))


def evaluations_in(folder: pathlib.Path) -> list[dict]:
  """The lines of metrics.jsonl that hold metrics of an evaluation."""
  lines = metrics_log.read(folder)
  keys = set(registry.headlines({key for line in lines for key in line}))
  return [line for line in lines if not keys.isdisjoint(line)]
