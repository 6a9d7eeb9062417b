"""The callbacks of the core: metrics, checkpoints, evaluations, a profile."""

import contextlib
import dataclasses
import math
from collections import deque

import jax
import numpy as np

from vit_jax.config import RunError
from vit_jax.devices.watchdog import Watchdog
from vit_jax.evaluation import catalogue, evaluations, examples, results
from vit_jax.evaluation.spec import EvalContext, EvaluationInterrupted
from vit_jax.learning.objective import PREFIX
from vit_jax.learning.train_step import TrainState, for_evaluation
from vit_jax.process import agreement, progress
from vit_jax.process.console import StopRequest
from vit_jax.process.text import one_line
from vit_jax.storage import files, metrics_log
from vit_jax.storage.base import Retry
from vit_jax.storage.metrics_log import Follower, NoWriter, Writer
from vit_jax.storage.paths import Path
from vit_jax.storage.saving import Checkpoints, SaveError
from vit_jax.training.early_stopping import EarlyStopping
from vit_jax.training.loop import BATCH, Callback, MetricAccumulator, of_one_batch
from vit_jax.training.run import Run
from vit_jax.training.speed import Monitor
from vit_jax.training.steps import due
from vit_jax.weights.card import average_warning


class TrainingError(RunError):
  """The run cannot go on; the message says at which step, why, and what to do."""


@dataclasses.dataclass(frozen=True)
class Session:
  """The objects that are open while a run trains.

  Attributes:
    folder: the workdir.
    checkpoints: saves and restores the state.
    writer: writes metrics, and tells the user.
    monitor: measures speed and time.
    watchdog: is told of progress.
    stop: tells whether the run was asked to stop.
    early_stopping: follows the evaluations.
    left: whether any steps were left to train when the session was opened.
    since: sums the metrics since the last logged line.
  """

  folder: Path
  checkpoints: Checkpoints
  writer: Writer | NoWriter
  monitor: Monitor
  watchdog: Watchdog
  stop: StopRequest
  early_stopping: EarlyStopping
  left: bool
  since: MetricAccumulator


LEAST = 1000  # images of which a share may be broken
LATEST = 32  # images, or those of the last step if more; most of them must be good


class Metrics(Callback):
  """Reads the metrics of each step, ends the run if a limit is passed, and logs the metrics.

  The loss and the objective's metrics are logged as means over the steps since the last line, and
  their values for the line's own batch as batch/NAME.
  """

  def __init__(self, run: Run, session: Session):
    super().__init__(run, session)
    self._pending: tuple[int, dict] | None = None
    self._warning = ""
    steps = math.ceil(LATEST / run.resume_point.batch_size)
    self._bad: deque[int] = deque(maxlen=steps + 1)  # broken images so far, after each last step

  def start(self, moment):
    """Reads the number of broken images so far."""
    self._bad.append(int(moment.state.bad_examples))

  def dispatched(self, step, metrics):
    """Reads the metrics of the step before."""
    self.read_metrics()
    self._pending = step, metrics

  def after_step(self, moment):
    """Reads the metrics of this step."""
    self.read_metrics()

  def end(self, moment):
    """Waits until all metrics are written."""
    self._session.writer.complete(lambda: self._session.watchdog.beat("writing metrics"))

  def read_metrics(self):
    """Reads the pending metrics, which waits for the end of their step.

    Raises:
      TrainingError: losses that are not finite, or too many broken images.
    """
    if self._pending is None:
      return
    step, metrics = self._pending
    self._pending = None
    metrics = jax.device_get(metrics)
    self._check_finite(step, metrics)
    self._check_examples(step, int(metrics["bad_examples"]))
    of_batch = {name: float(metrics[name]) for name in metrics if of_one_batch(name)}
    if metrics["skipped"]:
      self._session.since.skipped += 1
    else:
      self._session.since.add(of_batch)
    if due(step, self._run.steps.log) or self._perhaps_last(step):
      self._log(step, metrics, of_batch)

  def _perhaps_last(self, step):
    """Whether the run ends after this step, or does if the evaluation after it is not better."""
    if due(step, self._run.steps.evaluate) and self._session.early_stopping.may_stop:
      return True
    return step == self._run.steps.total

  def _log(self, step, metrics, of_batch):
    writer = self._session.writer
    line = {name: float(value) for name, value in metrics.items()}
    line |= {BATCH + name.removeprefix(PREFIX): value for name, value in of_batch.items()}
    line |= self._session.since.take()
    line |= self._session.monitor.report(step)
    line["data/bad_examples"] = int(line.pop("bad_examples"))
    writer.write(step, line)
    writer.progress(metrics_log.progress_line(step, self._run.steps.total, line))
    warning = self._run.objective.warning(line)
    if warning and warning != self._warning:
      writer.say(f"Warning: step {step}: {warning}")
    self._warning = warning

  def _check_finite(self, step, metrics):
    """Ends the run if an update is not finite, unless the settings allow to skip it."""
    skipped = int(metrics["skipped"])
    settings = self._run.config.non_finite
    finite = np.isfinite(metrics["update_norm"])
    if not skipped and finite:
      return
    what = (
      f"step {step}: loss {metrics['loss']}, gradient norm {metrics['grad_norm']}, update norm "
      f"{metrics['update_norm']}"
    )
    if skipped:
      what += "; the update was left out"
    if finite and settings.action == "skip" and skipped <= settings.limit:
      self._session.writer.say(
        f"Not finite at {what} ({skipped} of at most {settings.limit} in a row)."
      )
      return
    last = self._session.checkpoints.last_step()
    good = f"{self._session.folder}/checkpoints/{last}" if last else "none yet"
    advice = self._advice(settings.action, skipped)
    raise TrainingError(
      f"Not finite at {what}. Last good checkpoint: {good}. {advice}; then start again."
    )

  def _advice(self, action, skipped):
    advice = "Lower config.schedule.learning_rate"
    if skipped:
      also = {
        "stop": ", or set config.non_finite.action=skip",
        "skip": ", or raise config.non_finite.limit",
      }
      advice += also[action]
    if self._run.attention == "cudnn":
      advice += ", or set config.model.attention=xla, if it is cuDNN's attention that fails"
    return advice

  def _check_examples(self, step, bad):
    """Refuses too many broken images, among the latest ones and among those taken so far."""
    self._bad.append(bad)
    seen = self._run.resume_point.up_to(step)
    share, repeats = self._run.config.data.bad_limit, self._run.config.data.repeats
    whole = min(len(self._run.data.train) * repeats, LEAST)  # the broken ones may come first
    if bad > share * max(seen + whole, LEAST):
      raise TrainingError(
        f"{bad} of {seen} training images up to step {step} are broken (they cannot be read or "
        f"decoded; each counts in each epoch), more than config.data.bad_limit={share}; the log "
        "above names them. Repair or remove them, or raise the limit."
      )
    self._check_latest(step)  # last: what was broken from the start is no lost disk

  def _check_latest(self, step):
    """Refuses to go on, and so to save, if most of the latest images are broken.

    In a long run the limit for all images so far would let it train on empty batches for days.
    """
    steps = len(self._bad) - 1
    if steps < self._bad.maxlen - 1:  # of this start
      return
    broken = self._bad[-1] - self._bad[0]
    taken = steps * self._run.resume_point.batch_size
    if broken > max(0.5, self._run.config.data.bad_limit) * taken:
      raise TrainingError(
        f"{broken} of the last {taken} training images up to step {step} cannot be read or decoded;"
        " the log above names them. Are they still there, and is their disk mounted? Bring them "
        "back and start the same command again."
      )


class Evaluation(Callback):
  """Evaluates when due, logs the metrics, and ends the run when early stopping says so.

  The state has been saved by then. A set that cannot be scored is named and counted, and the run
  goes on.
  """

  def __init__(self, run: Run, session: Session):
    super().__init__(run, session)
    self._context = EvalContext(run.model, run.config.loss, run.reader)

  def start(self, moment):
    """Makes the evaluation that was due when the run was stopped."""
    step = moment.step
    if step and not self._is_made(step):
      self._evaluate_if_due(moment)
    moment.ending = moment.ending or self._session.early_stopping.should_stop

  def _is_made(self, step) -> bool:
    """Whether the evaluation of a step is in the metrics, which only the first process reads."""
    first = jax.process_index() == 0
    return agreement.broadcast_bool(first and step in results.steps_in(self._session.folder))

  def wants(self, step):
    """Whether an evaluation is due."""
    return due(step, self._run.steps.evaluate)

  def after_step(self, moment):
    """Evaluates, unless the run was asked to stop: then the next start evaluates."""
    if not moment.stopping:
      self._evaluate_if_due(moment)
    moment.ending = moment.ending or self._session.early_stopping.should_stop

  def _evaluate_if_due(self, moment):
    step = moment.step
    last = step == self._run.steps.total
    if not self._run.data.evaluations or not (self.wants(step) or last):
      return
    try:
      with self._session.monitor.paused("evaluation"):
        scored, failed = self._scored(moment)
    except EvaluationInterrupted:
      moment.stopping = True
      return
    averaged = bool(moment.state.ema and scored)
    metrics = evaluations.metrics_of(scored)
    if averaged:
      metrics[catalogue.AVERAGE] = 1
    self._session.early_stopping.note(step, metrics)
    unscored = {f"{name}/{metrics_log.UNSCORED}": 1 for name in failed}
    self._session.writer.write(step, metrics | unscored)
    if scored:
      self._say(step, metrics, scored, averaged)
    for reason in failed.values():
      self._session.writer.say(f"Step {step}: {reason.rstrip('.')}. The run goes on.")
    if last or self._session.early_stopping.should_stop:
      with self._session.monitor.paused("plots"):
        self._write_details(scored, {"step": step, "average": averaged})

  def _scored(self, moment):
    session = self._session
    step = moment.step

    def stop():
      session.watchdog.beat(f"the evaluation after step {step}")
      return session.stop.alone()

    # Only an evaluation that may be the last one keeps its predictions.
    perhaps_last = step == self._run.steps.total or session.early_stopping.may_stop
    context = dataclasses.replace(self._context, stop=stop, detailed=perhaps_last)
    with progress.of_process(jax.process_index() == 0) as shown:
      context = dataclasses.replace(context, progress=shown)
      params = self._run.objective.for_model(for_evaluation(moment.state))
      return evaluations.score_each(self._run.data.evaluations, context, params)

  def _say(self, step, metrics, scored, averaged):
    writer = self._session.writer
    total = self._run.steps.total
    for name, result in scored:
      for key, picture in result.pictures.items():
        writer.picture(step, f"{name}/{key}", examples.png(picture))
    writer.say(f"step {step}/{total}  {catalogue.in_words(metrics)}{results.notes(scored)}")
    optimizer = dataclasses.asdict(self._run.config.optimizer)
    if averaged and (warning := average_warning(optimizer, step, total)):
      writer.say(warning)

  def _write_details(self, scored, origin: dict):
    """Writes the details of the last evaluation, on the first process; a failure only warns."""
    if jax.process_index() != 0:
      return
    try:
      results.write_details(self._session.folder, scored, origin)
    except Exception as error:  # the metrics are written, so the run must go on
      reason = one_line(f"{type(error).__name__}: {error}")
      self._session.writer.say(
        f"The details of the evaluation cannot be written ({reason}). The run goes on."
      )


class Profile(Callback, Follower):
  """Traces a window of steps; steps are counted from the first step of this process.

  A profile that cannot be made or written is named, and the run goes on.
  """

  def __init__(self, run: Run, session: Session):
    super().__init__(run, session)
    self._done = run.resume_point.step
    self._first = self._done + run.config.profile.first_step  # of the window
    self._count = run.config.profile.steps
    self._folder = session.folder / "profile"
    self._say = session.writer.say
    self._place = self._folder  # where JAX writes it
    self._tracing = False
    session.writer.follow(self)  # on the first process

  def before_step(self, step):
    """Starts the trace if the window begins with `step`; ends it if `step` comes after it."""
    if self._tracing and step == self._first + self._count:
      self._stop(step - 1)
    if self._count and step == self._first:
      with self._paused():
        self._place = files.place_to_fill(self._folder)
        jax.profiler.start_trace(self._place)
        self._tracing = True

  def end(self, moment):
    """Ends the trace if it is under way, or says why there is none."""
    if self._tracing:
      self._stop(moment.step)
    elif self._count and self._done < moment.step < self._first:
      first = self._first - self._done
      self._say(
        f"No profile: config.profile.first_step={first} was not reached; give a smaller one."
      )

  def close(self):
    """Ends a trace that an error has cut short, so that this process can trace again."""
    if self._tracing:
      with contextlib.suppress(Exception):  # the error says why the run has ended
        jax.profiler.stop_trace()

  def _stop(self, last):
    self._tracing = False
    with self._paused():
      jax.profiler.stop_trace()
      files.bring(self._place, self._folder)
      self._say(one_line(f"Profile of {last - self._first + 1} steps: {self._folder}"))

  @contextlib.contextmanager
  def _paused(self):
    """Leaves the time inside out of the speed; an error inside only warns."""
    with self._session.monitor.paused("profile"):
      try:
        yield
      except Exception as error:  # a full disk, a bucket, or another trace of this program
        reason = one_line(f"{type(error).__name__}: {error}")
        self._say(f"The profile cannot be written ({reason}). The run goes on.")


CHECKED = 50  # steps between the checks of several processes on a save that is under way


class Checkpointing(Callback):
  """Saves states, and retries for a while if that fails; the run goes on meanwhile.

  A retry saves the state of its own step. All processes decide alike, at the same steps, by the
  clock of the first process.
  """

  def __init__(self, run: Run, session: Session, retry: Retry | None = None):
    self.session = session
    self._steps = run.steps
    self._part = run.saved
    self._meta = run.description()
    self._scores = bool(run.data.evaluations)
    self._retry = retry or Retry(run.config.checkpoint.retry_seconds)
    self._due = self._scored = False

  def wants(self, step):
    """Whether to save after `step`: when a save is due, and before each evaluation.

    Several processes check on an earlier save only at some steps, because each check waits for the
    devices.

    Raises:
      SaveError: a save failed, and there is no time left to try again.
    """
    self._scored = self._scores and due(step, self._steps.evaluate)
    self._due = self._scored or due(step, self._steps.save)
    checkpoints = self.session.checkpoints
    checked = step % CHECKED == 0 and (checkpoints.under_way or self._retry.failing)
    if jax.process_count() > 1 and not (self._due or checked or due(step, self._steps.log)):
      return False
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
    self.session.checkpoints.save(self._part(state), meta, best=best)

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
