"""Early stopping: the best evaluation so far, and when to end the run (Section 4.3, Figure 4)."""

import dataclasses
import json
from collections.abc import Mapping

import jax
import numpy as np

from vit_jax.config import ConfigError
from vit_jax.config import EarlyStopping as Settings
from vit_jax.evaluation import catalogue
from vit_jax.process import agreement, text
from vit_jax.storage import checkpoint, metrics_log
from vit_jax.storage.paths import Path
from vit_jax.storage.workdir import CHECKPOINTS


@dataclasses.dataclass(frozen=True)
class Best:
  """The best evaluation so far.

  Attributes:
    step: the step of that evaluation; 0: there is none yet.
    value: the value of the metric.
    since: the number of evaluations after it; none of them was better.
    seen: the step of the last evaluation that counts.
  """

  step: int = 0
  value: float = float("nan")
  since: int = 0
  seen: int = 0

  def after(self, step: int, value: float, *, metric: str) -> "Best":
    """The best, including the evaluation after `step`, which gave `value`; NaN is never better.

    An evaluation that was made again counts once.
    """
    if step <= self.seen:
      return self
    known = catalogue.metric(metric)
    smaller = known is not None and known.smaller_is_better
    better = value < self.value if smaller else value > self.value
    if better or (not self.step and not np.isnan(value)):
      return Best(step, value, seen=step)
    return dataclasses.replace(self, since=self.since + 1, seen=step)


NONE = Best()


def recorded(meta: Mapping, metric: str) -> Best:
  """The best of this metric that a checkpoint's description holds; none if it has another's.

  Raises:
    ConfigError: the description is damaged.
  """
  if meta.get("best", {}).get("metric") != metric:
    return Best()
  match meta["best"]:
    case {"step": int(step), "value": float() | str() as value, "since": int(s), "seen": int(seen)}:
      return Best(step, float(value), s, seen)
    case other:
      raise ConfigError(f"A checkpoint is damaged: best={other!r} is not that of an evaluation.")


def best_elsewhere(source: Path) -> str:
  """Names the best checkpoint of a workdir, in a sentence, if its newest one is another; or "".

  Raises:
    ConfigError: as `recorded`.
  """
  workdir, steps = checkpoint.named_by(source)
  newest, meta = checkpoint.described(source)
  metric = meta.get("best", {}).get("metric", "")
  if not metric:
    return ""
  # Its own evaluation came after it was saved.
  lines = [line for line in metrics_log.read_lines(workdir) if line["step"] <= newest]
  best = best_of(lines, metric, recorded(meta, metric)).step
  if best == newest or best not in steps:
    return ""
  return (
    f"{source}: its newest checkpoint is taken, step {newest}; the best by {metric} is "
    f"{workdir / CHECKPOINTS / str(best)}."
  )


def best_of(lines: list[dict], metric: str, best: Best = NONE) -> Best:
  """The best evaluation among `best` and the later lines of metrics.jsonl.

  The lines hold NaN and infinity as strings.
  """
  for line in lines:
    if metric in line:
      best = best.after(line["step"], float(line[metric]), metric=metric)
  return best


def agreed(best: Best) -> Best:
  """The best of the first process, bit for bit, on every process."""
  words = agreement.broadcast_str(lambda: json.dumps(dataclasses.asdict(best)))
  return Best(**json.loads(words))


class EarlyStopping:
  """Follows the evaluations of a run. All processes see the same metrics, so all decide alike."""

  def __init__(self, settings: Settings, best: Best):
    """Continues from the best evaluation so far."""
    self._settings = settings
    self.best = best

  @classmethod
  def of_run(cls, settings: Settings, folder: Path, best: Best) -> "EarlyStopping":
    """Continues from the best of the checkpoint, and from later evaluations in metrics.jsonl.

    The first process reads them. Checkpoints of earlier versions have no best.
    """
    if not settings.metric:
      return cls(settings, best)
    if jax.process_index() == 0:
      best = best_of(metrics_log.read_lines(folder), settings.metric, best)
    return cls(settings, agreed(best))

  def description(self) -> dict:
    """The best evaluation for a checkpoint's description; `recorded` reads it."""
    if not self._settings.metric:
      return {}
    best = dataclasses.replace(self.best, value=float(self.best.value))
    best = text.finite(dataclasses.asdict(best))
    return {"best": best | {"metric": self._settings.metric}}

  def note(self, step: int, metrics: dict[str, float]):
    """Updates the best with the metrics of the evaluation after `step`."""
    metric = self._settings.metric
    if metric in metrics:  # not if its set could not be scored
      self.best = self.best.after(step, metrics[metric], metric=metric)

  @property
  def should_stop(self) -> bool:
    """Whether the run should end: `patience` evaluations in a row were not better."""
    return bool(self._settings.patience) and self.best.since >= self._settings.patience

  @property
  def may_stop(self) -> bool:
    """Whether the run ends if the next evaluation is not better."""
    return bool(self._settings.patience) and self.best.since + 1 >= self._settings.patience

  def in_words(self, folder: Path) -> list[str]:
    """Says whether the run stopped early, and where the best state is; [] without a metric."""
    metric = self._settings.metric
    best = self.best
    if not metric:
      return []
    ended = f"Stopped early: {best.since} evaluations in a row gave no better {metric}."
    reached = f"{metric} was never a number"
    if best.step:
      reached = f"{metric} {best.value:.4f} after step {best.step}, {self._place(folder)}"
    return [ended] * self.should_stop + [f"Best:       {reached}"]

  def _place(self, folder):
    step = self.best.step
    if step not in checkpoint.available(folder):
      return "of which there is no checkpoint"
    return (
      f"{folder}/{CHECKPOINTS}/{step} (to evaluate it: this command with --mode=evaluate "
      f"--config.evaluate_step={step})"
    )

  def flag(self, folder: Path) -> str:
    """The flag that makes vit-jax export take the best checkpoint; "" if there is none."""
    if self.best.step not in checkpoint.available(folder):
      return ""
    return f" --step {self.best.step}"
