"""The callback that decides when to save a checkpoint, and when to retry after a failure."""

import dataclasses

import jax

from vit_jax.learning.state import TrainState
from vit_jax.process import agreement
from vit_jax.process.retry import Retry
from vit_jax.process.text import one_line
from vit_jax.storage.saving import SaveError
from vit_jax.training.callbacks import Session
from vit_jax.training.loop import Callback
from vit_jax.training.run import Run
from vit_jax.training.steps import due


class Checkpointing(Callback):
  """Saves states, and retries for a while if that fails; the run goes on meanwhile.

  A retry saves the state of its own step. All processes decide alike, at the same steps, by the
  clock of the first process.
  """

  def __init__(self, run: Run, session: Session, retry: Retry | None = None):
    self.session = session
    self._steps = run.steps
    self._meta = run.description()
    self._scores = bool(run.data.evaluations)
    self._retry = retry or Retry(run.config.checkpoint.retry_seconds)
    self._due = self._scored = False

  def wants(self, step):
    """Whether to save after `step`: when a save is due, and before each evaluation.

    Several processes check on an earlier save only when a save is due or metrics are logged.

    Raises:
      SaveError: a save failed, and there is no time left to try again.
    """
    self._scored = self._scores and due(step, self._steps.evaluate)
    self._due = self._scored or due(step, self._steps.save)
    if jax.process_count() > 1 and not (self._due or due(step, self._steps.log)):
      return False
    checkpoints = self.session.checkpoints
    checkpoints.look()
    self._note_outcome()
    retrying = self._retry.failing and not checkpoints.under_way
    self._due = self._due or (retrying and agreement.broadcast_bool(self._retry.due()))
    return self._due

  def after_step(self, moment):
    """Saves if a save is due, and at the end; waits if the state is evaluated next."""
    if moment.stopping:
      self.session.writer.say(
        f"Stopping after step {moment.step}; saving ... (a second Ctrl-C ends it at once, unsaved)"
      )
    if moment.last or self._due:
      self.save(moment.state, best=self._best(), last=moment.last)

  def end(self, moment):
    """Waits for the last save if the evaluation after it ended the run; keeps the best state."""
    if not self.session.left:
      return
    with self.session.monitor.paused("checkpoint"):
      self._complete(moment.state, self._best())
    self.session.checkpoints.prune(best=self._best())

  def _best(self) -> int:
    return self.session.early_stopping.best.step

  def save(self, state: TrainState, *, best: int, last: bool):
    """Starts to save the state; the checkpoint of step `best` is kept as well (0: none).

    Args:
      state: the state.
      best: the step of the best evaluation.
      last: whether the run ends here; then waits until the state is saved.

    Raises:
      SaveError: as `wants`.
    """
    with self.session.monitor.paused("checkpoint"):
      self._start(state, best)
      if last:
        self._complete(state, best)
      elif self._scored:
        self._saved()

  def _complete(self, state, best):
    while not self._saved():
      self._retry.wait(self._alive)
      self._start(state, best)

  def _alive(self):
    self.session.watchdog.beat("a checkpoint")

  def _start(self, state, best):
    self._alive()
    self._saved()
    meta = self._meta | {
      "since_line": dataclasses.asdict(self.session.since),
      "lines": self.session.writer.lines,
      **self.session.early_stopping.description(),
    }
    self.session.checkpoints.save(state, meta, best=best)

  def _saved(self) -> bool:
    self.session.checkpoints.wait()
    self._note_outcome()
    return not self._retry.failing

  def _note_outcome(self):
    failure = self.session.checkpoints.outcome()
    was_failing = self._retry.failing
    if failure is None:
      return
    if not failure:
      self._retry.succeeded()
      if was_failing:
        self.session.writer.say("A checkpoint is saved again.")
      return
    if not agreement.broadcast_bool(self._retry.failed()):
      raise SaveError(
        f"{failure}.{self._retry.in_words()} Make room, bring the folder back or make it "
        "writable, and start the same command again."
      )
    if not was_failing:
      self.session.writer.say(
        f"{one_line(failure)}. The run goes on, and tries again for {self._retry.seconds:g} s "
        "(config.checkpoint.retry_seconds)."
      )
