"""Saves states, and handles saves that fail."""

import dataclasses
import pathlib

from vit_jax.devices.watchdog import Watchdog
from vit_jax.learning.state import TrainState
from vit_jax.storage.metrics_log import NoWriter, Writer
from vit_jax.storage.saving import Checkpoints, SaveError
from vit_jax.training.speed import Monitor


@dataclasses.dataclass(frozen=True)
class Saver:
  """Saves states, and tells the user of saves that failed.

  Attributes:
    checkpoints: of the run.
    folder: its workdir.
    meta: description of the run, saved beside each state.
    on_failure: config.checkpoint.on_failure.
    writer: tells the user.
    monitor: counts the time.
    watchdog: is told of progress.
  """

  checkpoints: Checkpoints
  folder: pathlib.Path
  meta: dict
  on_failure: str
  writer: Writer | NoWriter
  monitor: Monitor
  watchdog: Watchdog

  def save(self, state: TrainState, *, best: int):
    """Starts to save the state; the checkpoint of step `best` is kept as well (0: none)."""
    self.watchdog.beat("a checkpoint")
    with self.monitor.paused("checkpoint"):
      self.check(wait=True)
      self.checkpoints.save(state, self.meta, best=best)

  def check(self, *, wait: bool = False, last: bool = False):
    """Reports a save that failed.

    Args:
      wait: whether to wait for a save that is under way.
      last: waits too; a failure of this save always ends the run.

    Raises:
      SaveError: a save failed, and it was the last one or config.checkpoint.on_failure is "stop".
    """
    failure = self.checkpoints.failure(wait=wait or last)
    if not failure:
      return
    if last or self.on_failure == "stop":
      raise SaveError(
        f"{failure}. Make room, or make the folder writable, and start the same command again."
      )
    self.writer.say(f"{failure}. The run goes on and saves again when that is due.")
