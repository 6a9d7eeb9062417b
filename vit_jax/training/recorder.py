"""Reads the metrics of steps, checks them, and logs them when that is due."""

import dataclasses

import jax
import numpy as np

from vit_jax.config import NonFinite, RunError
from vit_jax.storage import metrics_log
from vit_jax.storage.metrics_log import NoWriter, Writer
from vit_jax.training.saver import Saver
from vit_jax.training.speed import Monitor
from vit_jax.training.steps import ImageCount, Steps, due


class TrainingError(RunError):
  """The run cannot go on; the message says at which step, why, and what to do."""


@dataclasses.dataclass(frozen=True)
class Limits:
  """How much may go wrong before a run ends.

  Attributes:
    non_finite: what to do about updates that are not finite.
    bad_share: largest allowed share of training images that cannot be decoded.
    images: the training images up to a step.
  """

  non_finite: NonFinite
  bad_share: float
  images: ImageCount


@dataclasses.dataclass(frozen=True)
class Recorder:
  """Reads the metrics of steps, ends the run if a limit is passed, and logs the metrics.

  Attributes:
    limits: how much may go wrong.
    steps: tells when metrics are logged.
    writer: writes them.
    monitor: adds the speed.
    saver: knows the last good checkpoint.
  """

  limits: Limits
  steps: Steps
  writer: Writer | NoWriter
  monitor: Monitor
  saver: Saver

  def settle(self, pending: tuple[int, dict] | None):
    """Reads the metrics of a step, and waits for its end; None: there is nothing to read.

    Raises:
      TrainingError: losses that are not finite, or too many broken images.
    """
    if pending is None:
      return
    step, metrics = pending
    metrics = jax.device_get(metrics)
    self._check_finite(step, metrics)
    self._check_examples(step, int(metrics["bad_examples"]))
    if due(step, self.steps.log) or step == self.steps.total:
      self._log(step, metrics)

  def _log(self, step, metrics):
    line = {name: float(value) for name, value in metrics.items()} | self.monitor.report(step)
    line["data/bad_examples"] = int(line.pop("bad_examples"))
    line["skipped"] = int(line["skipped"])
    self.writer.write(step, line)
    self.writer.progress(metrics_log.progress_line(step, self.steps.total, line))

  def _check_finite(self, step, metrics):
    """Ends the run if an update is not finite, unless the settings allow to leave it out."""
    left_out, action = int(metrics["skipped"]), self.limits.non_finite
    applied = np.isfinite(metrics["update_norm"])
    if not left_out and applied:
      return
    what = (
      f"step {step}: loss {metrics['loss']}, gradient norm {metrics['grad_norm']}, update norm "
      f"{metrics['update_norm']}" + ("; the update was left out" if left_out else "")
    )
    if applied and action.action == "skip" and left_out <= action.limit:
      self.writer.say(f"Not finite at {what} ({left_out} of at most {action.limit} in a row).")
      return
    last = self.saver.checkpoints.last_step()
    good = f"{self.saver.folder}/checkpoints/{last}" if last else "none yet"
    also = {
      "stop": ", or set config.non_finite.action=skip",
      "skip": ", or raise config.non_finite.limit",
    }
    advice = "Lower config.schedule.learning_rate" + (also[action.action] if left_out else "")
    raise TrainingError(
      f"Not finite at {what}. Last good checkpoint: {good}. {advice}; then start again."
    )

  def _check_examples(self, step, bad):
    """Checks the share of broken images, of at least 1,000: one early broken image is harmless."""
    seen, share = self.limits.images.up_to(step), self.limits.bad_share
    if bad > share * max(seen, 1000):
      raise TrainingError(
        f"{bad} of {seen} training images up to step {step} could not be decoded, more than "
        f"config.data.bad_limit={share}; the log above names them. Repair or remove them, or "
        "raise the limit."
      )
