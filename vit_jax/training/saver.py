"""Saves states when that is due, and tries again after a save that failed."""

import dataclasses
import pathlib

import jax

from vit_jax.devices.watchdog import Watchdog
from vit_jax.learning.state import TrainState
from vit_jax.process import agreement
from vit_jax.process.retry import Retry
from vit_jax.storage.metrics_log import NoWriter, Writer
from vit_jax.storage.saving import Checkpoints, SaveError
from vit_jax.training.speed import Monitor
from vit_jax.training.steps import Steps, due


@dataclasses.dataclass(frozen=True)
class Saver:
  """Saves states, and tries again for a while if that fails; the run goes on meanwhile.

  A later try saves the state of its own step. All processes decide alike, at the same steps: the
  first one's clock counts.

  Attributes:
    checkpoints: of the run.
    folder: its workdir.
    meta: description of the run, saved beside each state.
    retry: how long a failed save is tried again.
    steps: tells when saves are due.
    writer: tells the user.
    monitor: counts the time.
    watchdog: is told of progress.
  """

  checkpoints: Checkpoints
  folder: pathlib.Path
  meta: dict
  retry: Retry
  steps: Steps
  writer: Writer | NoWriter
  monitor: Monitor
  watchdog: Watchdog

  def due(self, step: int) -> bool:
    """Whether to save after `step`; every process must call this at every step.

    Several processes ask how a save went only where one is due and where metrics are logged.

    Raises:
      SaveError: a save failed, and there is no time left to try again.
    """
    saving = due(step, self.steps.save)
    if jax.process_count() > 1 and not (saving or due(step, self.steps.log)):
      return False
    self.checkpoints.look()
    self._note_outcome()
    retrying = self.retry.failing and not self.checkpoints.under_way
    return saving or (retrying and agreement.answer_of_first(self.retry.due()))

  def save(self, state: TrainState, *, best: int, last: bool):
    """Starts to save the state; the checkpoint of step `best` is kept as well (0: none).

    Args:
      state: the state.
      best: the step of the best evaluation.
      last: whether the run ends here; then it waits until the state is saved.

    Raises:
      SaveError: as `due`.
    """
    with self.monitor.paused("checkpoint"):
      self._start(state, best)
      while last and not self._saved():
        self.retry.wait(self._alive)
        self._start(state, best)

  def _alive(self):
    self.watchdog.beat("a checkpoint")

  def _start(self, state, best):
    self._alive()
    self.checkpoints.wait()
    self._note_outcome()
    self.checkpoints.save(state, self.meta, best=best)

  def _saved(self) -> bool:
    self.checkpoints.wait()
    self._note_outcome()
    return not self.retry.failing

  def _note_outcome(self):
    failure, failing = self.checkpoints.outcome(), self.retry.failing
    if failure is None:
      return
    if not failure:
      self.retry.succeeded()
      if failing:
        self.writer.say("A checkpoint is saved again.")
      return
    if not agreement.answer_of_first(self.retry.failed()):
      raise SaveError(
        f"{failure}.{self.retry.in_words()} Make room, bring the folder back or make it "
        "writable, and start the same command again."
      )
    if not failing:
      self.writer.say(
        f"{failure}. The run goes on, and tries again for {self.retry.seconds:g} s "
        "(config.checkpoint.retry_seconds)."
      )
