"""All evaluations of a run, inside the training loop or with --mode=evaluate."""

import functools
import json
import pathlib
import re

import jax

from vit_jax.config import Loss, RunError
from vit_jax.data import resizing
from vit_jax.data.batches import Reader
from vit_jax.data.images import BadImage
from vit_jax.devices import mesh as meshes
from vit_jax.devices import watchdog
from vit_jax.evaluation import (
  classification,
  details,
  evaluated_model,
  features,
  few_shot,
  nearest_neighbours,
)
from vit_jax.evaluation.opening import Evaluations
from vit_jax.plots import curves
from vit_jax.storage import metrics_log, workdir

RESULT = "evaluation.json"
DETAILS = "evaluation"
TOO_LITTLE_MEMORY = "Lower config.batch_size, or split the parameters by config.mesh.fsdp."
ACCURACY = re.compile(r"(?P<name>.+)/(?P<kind>top1|\d+shot|\d+nn)")


class Evaluation:
  """Calls the evaluators on every set."""

  def __init__(
    self,
    evaluations: Evaluations,
    model,
    loss: Loss,
    reader: Reader,
    keep=lambda name: lambda rows: None,
  ):
    """Jits the evaluators' steps; they are compiled at the first use.

    Args:
      evaluations: the opened sets.
      model: Flax module.
      loss: of which a set's mean is told.
      reader: reads batches, and knows the devices.
      keep: keep(name) is given the rows of each batch of that set (`classification.evaluate`).
    """
    self._evaluations, self._reader, self._keep = evaluations, reader, keep

    def compiled(step, **options):
      everywhere = meshes.replicated(reader.mesh)
      return jax.jit(meshes.on(reader.mesh, step), out_shardings=everywhere, **options)

    step = classification.make_step(model, loss)
    self._classify = compiled(step, static_argnames="classes")
    self._see = compiled(features.make_step(model))
    self._probe = compiled(few_shot.make_step(model))

  def __call__(self, params, *, stop) -> dict[str, float] | None:
    """Figures of all sets as {"NAME/top1": ...}; None where `stop()` came true on the way.

    Raises:
      RunError: a set cannot be read, or nothing in it counts.
    """
    data, figures = self._evaluations, {}
    for score, names in (
      (self._score, data.sets),
      (self._few_shot, data.few_shot),
      (self._nearest, data.nearest),
    ):
      for name in names:
        try:
          with jax.transfer_guard("disallow"):
            result = score(name, params, stop)
        except (BadImage, OSError, classification.NothingCounts) as error:
          raise RunError(f"Evaluation set {name!r} cannot be scored: {error}") from error
        if result is None:
          return None
        figures |= {f"{name}/{figure}": value for figure, value in result.items()}
    return figures

  def _score(self, name, params, stop):
    classes = self._evaluations.classes.get(name)
    _, dataset, source = self._evaluations.sets[name]
    resize = resizing.of_set(dataset, self._reader.settings)
    read = self._reader.evaluation(source, resize=resize)
    with self._reader.ahead(read) as batches:
      return classification.evaluate(
        lambda params, batch: self._classify(params, batch, classes=classes),
        params,
        batches,
        stop=stop,
        keep=self._keep(name),
      )

  def _few_shot(self, name, params, stop):
    data = self._evaluations.few_shot[name]
    settings = data.settings
    seen = self._collect(data.train, params, stop)
    probes = []
    for k in settings.shots:
      for draw in data.draws:
        if seen is None or stop():
          return None
        rows = draw[:, :k].ravel()
        probes.append(few_shot.fit(seen[0][rows], seen[1][rows], len(data.test.class_names)))
    probes = meshes.replicate(self._reader.mesh, few_shot.stack(probes))
    with self._reader.ahead(self._reader.squares(data.test)) as batches:
      accuracy = few_shot.accuracies(self._probe, params, probes, batches, stop=stop)
    if accuracy is None:
      return None
    return few_shot.figures(settings.shots, accuracy.reshape(-1, settings.seeds))

  def _nearest(self, name, params, stop):
    data = self._evaluations.nearest[name]
    settings = data.settings
    train, test = (self._collect(part, params, stop) for part in (data.train, data.test))
    if train is None or test is None:
      return None
    accuracy = nearest_neighbours.accuracy(
      train,
      test,
      stop=stop,
      num_classes=len(data.test.class_names),
      neighbours=settings.neighbours,
      temperature=settings.temperature,
    )
    return None if accuracy is None else {f"{settings.neighbours}nn": accuracy}

  def _collect(self, source, params, stop):
    with self._reader.ahead(self._reader.squares(source)) as batches:
      return features.collect(self._see, params, batches, stop=stop)


def evaluate(
  read: evaluated_model.Scored, evaluations: Evaluations, reader: Reader, folder: pathlib.Path
) -> dict[str, float]:
  """Evaluates parameters, prints the figures and writes WORKDIR/evaluation.json.

  Of every set whose images have one label each, WORKDIR/evaluation/NAME holds every prediction, the
  accuracy of each class and the confusion matrix.

  Raises:
    RunError: a set cannot be read, or the folder written.
  """
  sets = {name: scored.source for name, scored in evaluations.sets.items()}
  kept = {name: details.Kept() for name, source in sets.items() if not source.multi_label}
  keep = lambda name: kept[name].add if name in kept else lambda rows: None
  evaluation = Evaluation(evaluations, read.model, read.config.loss, reader, keep)
  if jax.process_index() == 0:
    with workdir.writing(folder):
      folder.mkdir(parents=True, exist_ok=True)
    print(scored_in_words(read))
    if read.resized or read.side not in (0, read.config.data.image_size):
      print(other_size_in_words(read))
  with watchdog.of_run(read.config, folder) as watching:
    stop = functools.partial(went_on, watching)
    figures = watching.guarded(
      lambda: evaluation(evaluated_model.put(read.params, reader.mesh), stop=stop),
      too_little=TOO_LITTLE_MEMORY,
    )
  if jax.process_index() == 0:
    result = folder / RESULT
    with workdir.writing(folder):
      result.write_text(json.dumps(read.origin | figures, indent=2) + "\n")
      for name, rows in kept.items():
        write_details(folder / DETAILS / name, sets[name], rows)
    origin = " ".join(f"{key} {value}" for key, value in read.origin.items())
    also = f", details to {folder / DETAILS}" if kept else ""
    print(f"{origin}  {in_words(figures)}\nWritten to {result}{also}")
  return figures


def scored_in_words(read: evaluated_model.Scored) -> str:
  """What is scored, and how its images are prepared."""
  origin = " ".join(f"{key} {value}" for key, value in read.origin.items())
  said = f"{origin}: {type(read.model).__name__}, images {read.prepared}"
  return f"{said}; classes: {read.classes}" if read.classes else said


def other_size_in_words(read: evaluated_model.Scored) -> str:
  """That the weights are of images of another size than those that they are scored on."""
  side = read.config.data.image_size
  said = f"These weights are of images of another size than config.data.image_size={side}"
  said += f"; their position embeddings were interpolated: {read.resized}." if read.resized else "."
  return f"{said} Scored as trained: --config.data.image_size={read.side}." if read.side else said


def went_on(watching: watchdog.Watchdog) -> bool:
  """Tells the watchdog that another batch is done; an evaluation by itself is never given up."""
  watching.beat("the evaluation")
  return False


def write_details(folder: pathlib.Path, source, kept: details.Kept):
  """Writes the details of one set as tables, and the confusion matrix as a picture."""
  known = details.Details(source.class_names, *kept.joined(), source.name)
  matrix = details.write(folder, known)
  if matrix is not None:
    curves.confusion(folder, matrix, source.class_names)


def is_evaluation(line: dict) -> bool:
  """Whether a line of metrics.jsonl holds figures of an evaluation."""
  return any(ACCURACY.fullmatch(key) for key in line)


def steps_in(folder: pathlib.Path) -> frozenset[int]:
  """The steps that metrics.jsonl already holds an evaluation of."""
  return frozenset(line["step"] for line in metrics_log.read(folder) if is_evaluation(line))


def in_words(figures: dict[str, float]) -> str:
  """Figures of evaluations on one line."""
  said = []
  for key, value in figures.items():
    match = ACCURACY.fullmatch(key)
    if match is None:
      continue
    name, kind = match["name"], match["kind"]
    if kind == "top1":
      said.append(
        f"{name}: top-1 {value:.2%}, top-5 {figures[f'{name}/top5']:.2%}, "
        f"loss {figures[f'{name}/loss']:.4f} on {figures[f'{name}/examples']:,} images"
      )
    elif kind.endswith("shot"):
      said.append(
        f"{name}: {kind.removesuffix('shot')}-shot {value:.2%} +- {figures[f'{key}_std']:.2%}"
      )
    else:
      said.append(f"{name}: {kind.removesuffix('nn')} nearest {value:.2%}")
  return "; ".join(said)
