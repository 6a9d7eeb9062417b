"""--mode=evaluate: scores the parameters of a run or of a file on all evaluations."""

import functools

import jax

from vit_jax.config import ConfigError, Data, in_pixels
from vit_jax.data import crops, datasets
from vit_jax.data.batches import Reader
from vit_jax.devices import mesh as meshes
from vit_jax.devices import watchdog
from vit_jax.evaluation import catalogue, evaluated_model, results
from vit_jax.evaluation.evaluations import Evaluations, metrics_of, score_all
from vit_jax.evaluation.spec import EvalContext, Result
from vit_jax.process import progress, text
from vit_jax.process.text import one_line, quoted
from vit_jax.storage import files, workdir
from vit_jax.storage.paths import Path

TOO_LITTLE_MEMORY = "Lower config.batch_size, or split the parameters by config.mesh.fsdp."


def evaluate(
  read: evaluated_model.Scored,
  evaluations: Evaluations,
  reader: Reader,
  folder: Path,
  *,
  stall_seconds: float,
) -> dict[str, float]:
  """Evaluates parameters, prints the metrics and writes WORKDIR/evaluation.json.

  Sets whose images have one label each also get a folder WORKDIR/evaluation/NUMBER/NAME with all
  predictions, the accuracy of each class and the confusion matrix.

  Args:
    read: the parameters.
    evaluations: what they are scored on.
    reader: feeds them.
    folder: the folder, as `check_folder` leaves it.
    stall_seconds: as the setting.

  Raises:
    RunError: a set cannot be read, or the folder cannot be written.
  """
  evaluations = evaluations.with_settings(read.settings)
  if jax.process_index() == 0:
    print(datasets.summary_table(evaluations.datasets))
    print(one_line(scored_in_words(read, evaluations)))
    if read.resized or read.size not in (0, read.settings.data.image_size):
      print(other_size_in_words(read))
  if read.head.names:
    evaluations = evaluations.of_head(read.head.names)
  with (
    watchdog.of_evaluation(stall_seconds, folder) as watching,
    progress.of_process(jax.process_index() == 0) as shown,
  ):
    stop = functools.partial(went_on, watching)
    context = EvalContext(
      read.model, read.settings.loss, reader, stop, detailed=True, progress=shown
    )
    with watching.guarded(too_little=TOO_LITTLE_MEMORY):
      scored = score_all(evaluations, context, put(read, reader.mesh))
  if jax.process_index() == 0:
    report(read, scored, folder)
  return metrics_of(scored)


def check_folder(read: evaluated_model.Scored, folder: Path):
  """Makes the folder of the results, and checks that it can be written to: scoring may take hours.

  Raises:
    ConfigError: it cannot; the message says how to write to another folder.
  """
  try:
    workdir.check_writable(folder, workdir.DETAILS)
  except ConfigError as error:
    advice = "Give another --workdir."
    if "step" in read.origin:
      advice = (
        f"To score this run into another folder: vit-jax evaluate {quoted(folder)} DATA "
        f"--workdir=DIR, or on its own sets --config=RECIPE --config.init_from={quoted(folder)} "
        "--workdir=DIR (in Python: data and workdir)."
      )
    raise ConfigError(f"{str(error).removesuffix('.')}. {advice}") from error


def put(read: evaluated_model.Scored, mesh: jax.sharding.Mesh) -> dict:
  """Puts the parameters on the devices; every process puts its own part of each array."""
  rules = (*read.settings.objective.sharding, *read.model.sharding)
  shardings = meshes.shardings(mesh, read.params, read.params, rules)
  return jax.tree.map(meshes.place, read.params, shardings)


def report(read: evaluated_model.Scored, scored: list[tuple[str, Result]], folder: Path):
  """Prints and writes the results.

  Raises:
    WriteError: the folder cannot be written.
  """
  metrics = metrics_of(scored)
  origin = results.origin_in_words(read.origin)
  # Before anything is written: a disk may have filled meanwhile.
  print(one_line(f"{origin}  {catalogue.in_words(metrics)}") + results.notes(scored))
  result = folder / workdir.EVALUATION
  with workdir.writing(folder):
    details = results.write_details(folder, scored, read.origin)
    files.write_text(result, text.json_text(read.origin | metrics) + "\n")
  written = f"Written to {result}"
  if details:
    written += f", details to {details}"
  print(one_line(written))


def scored_in_words(read: evaluated_model.Scored, evaluations: Evaluations) -> str:
  """Describes the weights that are scored, and how images are prepared for them."""
  prepared = preparation_in_words(read.settings.data, evaluations, known=read.resizing_known)
  origin = results.origin_in_words(read.origin)
  text = f"{origin}: {type(read.model).__name__}, images {prepared}"
  if read.head.origin:
    text += f"; classes: {read.head.origin}"
  return text


def preparation_in_words(data: Data, evaluations: Evaluations, *, known: bool) -> str:
  """Describes how images are prepared.

  Args:
    data: the settings of the evaluation.
    evaluations: what is scored.
    known: as `Scored.resizing_known`.
  """
  own = {name: each.resizing_in_words(data) for name, each in evaluations.evaluators}
  texts = [f"{name}: {words}" for name, words in own.items() if words]
  if own and all(own.values()):
    return "; ".join(texts)
  of_all = crops.resampling_in_words(data, data.evaluate_resize, squeeze=data.evaluate_squeeze)
  if not known:
    of_all += (
      " (the weights do not tell whether a centre is to be cut: config.data.evaluate_resize)"
    )
  return "; ".join([of_all, *texts])


def other_size_in_words(read: evaluated_model.Scored) -> str:
  """A warning that the weights were trained on images of another size than they are scored on."""
  size = in_pixels(read.settings.data.image_size, "x")
  words = f"These weights were trained at another image size than config.data.image_size={size}"
  if read.resized:
    words += f"; their position embeddings were interpolated: {read.resized}"
  if read.size:
    words += (
      f". To score them at their own size: --config.data.image_size={in_pixels(read.size, 'x')}"
    )
  return f"{words}."


def went_on(watching: watchdog.Watchdog) -> bool:
  """Tells the watchdog that a batch is done; False: --mode=evaluate never stops half-way."""
  watching.beat("the evaluation")
  return False
