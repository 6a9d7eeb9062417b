"""Evaluations during training."""

import dataclasses
import pathlib
from collections.abc import Callable

import jax

from vit_jax.devices.watchdog import Watchdog
from vit_jax.evaluation import evaluate, registry
from vit_jax.evaluation.opening import Evaluations
from vit_jax.evaluation.spec import EvalContext, EvaluationInterrupted, Result
from vit_jax.learning.state import TrainState, for_evaluation
from vit_jax.plots import tiles
from vit_jax.process.signals import StopRequest
from vit_jax.process.text import one_line
from vit_jax.storage.metrics_log import NoWriter, Writer
from vit_jax.training.early_stopping import Watch
from vit_jax.training.speed import Monitor
from vit_jax.training.steps import Steps, due
from vit_jax.weights import average


@dataclasses.dataclass(frozen=True)
class Evaluator:
  """Evaluates at the steps that are due, and logs the metrics.

  Attributes:
    evaluations: the opened evaluations.
    context: the model, loss and reader that they use.
    steps: tells when they are due.
    watch: follows the metrics, for early stopping.
    stop: tells whether a signal came; in a run of one process it ends an evaluation at once.
    writer: writes the metrics.
    monitor: counts the time.
    watchdog: is told of progress.
    folder: the workdir.
    initial_share: (step) -> weight of the initial parameters in the moving average.
  """

  evaluations: Evaluations
  context: EvalContext
  steps: Steps
  watch: Watch
  stop: StopRequest
  writer: Writer | NoWriter
  monitor: Monitor
  watchdog: Watchdog
  folder: pathlib.Path
  initial_share: Callable[[int], float]

  def after(self, step: int, state: TrainState) -> bool:
    """Evaluates if an evaluation is due after `step`; returns False if a signal cut it short."""
    if not self.evaluations or not (due(step, self.steps.evaluate) or step == self.steps.total):
      return True

    def stop():
      self.watchdog.beat(f"the evaluation after step {step}")
      return self.stop.alone()

    perhaps_last = step == self.steps.total or self.watch.may_end  # others keep no predictions
    context = dataclasses.replace(self.context, stop=stop, detailed=perhaps_last)
    with self.monitor.paused("evaluation"):
      try:
        found = evaluate.results(self.evaluations, context, for_evaluation(state))
      except EvaluationInterrupted:
        return False
    metrics = evaluate.metrics_of(found) | ({registry.AVERAGE: 1} if state.ema else {})
    self.watch.note(step, metrics)
    self.writer.write(step, metrics)
    for name, one in found:
      for key, picture in one.pictures.items():
        self.writer.picture(step, f"{name}/{key}", tiles.png(picture))
    self.writer.say(
      f"step {step}/{self.steps.total}  " + registry.in_words(metrics) + evaluate.notes(found)
    )
    if state.ema and (said := average.warning(self.initial_share(step))):
      self.writer.say(said)
    if step == self.steps.total or self.watch.enough:
      with self.monitor.paused("plots"):
        self._write_details(found, {"step": step, "average": bool(state.ema)})
    return True

  def _write_details(self, found: list[tuple[str, Result]], origin: dict):
    """Writes the details of the last evaluation, on the first process; a failure is a warning."""
    if jax.process_index() != 0:
      return
    try:
      evaluate.write_details(self.folder, found, origin)
    except Exception as error:  # the last checkpoint is not saved yet: the run must go on
      said = one_line(f"{type(error).__name__}: {error}")
      self.writer.say(f"The details of the evaluation cannot be written ({said}). The run goes on.")
