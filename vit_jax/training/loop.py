"""The training loop: a fixed order of few calls."""

import contextlib
import dataclasses
import pathlib

import jax
import numpy as np
from jax.experimental import multihost_utils

from vit_jax.config import RunError, to_dict
from vit_jax.config.changes import changes
from vit_jax.devices import mesh as meshes
from vit_jax.devices import watchdog as watchdogs
from vit_jax.devices.chips import chip
from vit_jax.devices.watchdog import Watchdog
from vit_jax.evaluation import evaluate, registry
from vit_jax.evaluation.kind import Bench, GivenUp
from vit_jax.learning import state as states
from vit_jax.plots import curves
from vit_jax.process.signals import StopRequest
from vit_jax.storage import files, metrics_log, workdir
from vit_jax.storage.saving import Checkpoints, SaveError
from vit_jax.storage.tree import flatten
from vit_jax.training import early_stopping, init_from, messages
from vit_jax.training.goodput import Busy
from vit_jax.training.init_from import Initial
from vit_jax.training.plan import Plan, jit_step, total_count, trained_count
from vit_jax.training.speed import Monitor


class TrainingError(RunError):
  """The run cannot go on; the message says at which step, why, and what to do."""


@dataclasses.dataclass(frozen=True)
class Run:
  """A plan in progress: what the loop calls."""

  plan: Plan
  folder: pathlib.Path
  step: object
  busy: Busy
  checkpoints: Checkpoints
  writer: metrics_log.Writer | metrics_log.NoWriter
  monitor: Monitor
  watchdog: Watchdog
  bench: Bench
  stop: StopRequest
  start_evaluated: bool
  watch: early_stopping.Watch


def train(
  plan: Plan,
  folder: pathlib.Path,
  stop: StopRequest,
  start_from: Initial | None = None,
  began: float | None = None,
) -> bool:
  """Trains from the newest checkpoint of `folder`, or from the start, to the end.

  Args:
    plan: the run.
    folder: its workdir.
    stop: asked at every step.
    start_from: parameters that take the place of those drawn at the start.
    began: when the command began, by time.monotonic(); None: now.

  Returns:
    True at the end; False where a signal stopped the run, its state saved.

  Raises:
    TrainingError: losses that are not finite, or too many broken images.
    WriteError: the workdir cannot be written to.
    CheckpointError: checkpoints that are all damaged.
    SaveError: a checkpoint cannot be saved.
    ConfigError: a checkpoint that does not fit the config.
  """
  keep = dict(keep_last=plan.config.checkpoint.keep_last, keep_every=plan.steps.keep)
  with workdir.writing(folder):
    opened = Checkpoints(folder, **keep)
  settings = to_dict(plan.config)
  with (
    watchdogs.of_run(plan.config.stall_seconds, folder) as watchdog,
    contextlib.closing(opened) as checkpoints,
    Busy() as busy,
  ):
    state = checkpoints.restore(plan.abstract, meta_of(plan))
    start = 0 if state is None else int(state.step)
    fresh = state is None
    state = states.create(plan.init, plan.abstract) if fresh else state
    made_with = settings if fresh else checkpoints.made_with(start)
    run = make_run(plan, folder, checkpoints, watchdog, busy, start, stop, began)
    with contextlib.closing(run.writer):
      left = start < plan.steps.total and not run.watch.enough
      if left:
        describe(plan, folder)
      if fresh and start_from is not None:
        state = init_from.put(start_from, state)
        run.writer.say(start_from.report)
      changed = changes(made_with, settings)
      run.writer.say(messages.introduction(plan, folder, start, left=left, changed=changed))
      finished = watchdog.guarded(lambda: loop(run, state, start))
      watchdog.guarded(lambda: complete(run, finished))
  return finished


def make_run(
  plan: Plan, folder, checkpoints, watchdog, busy: Busy, start: int, stop: StopRequest, began
) -> Run:
  """Opens the writers and jits the step."""
  first = jax.process_index() == 0
  patient = plan.config.checkpoint.on_failure == "go_on"
  # The writer drops the lines of steps after `start`; only then is it asked what was evaluated.
  writer = (
    metrics_log.Writer(folder, start_step=start, patient=patient)
    if first
    else metrics_log.NoWriter()
  )
  return Run(
    plan=plan,
    folder=folder,
    checkpoints=checkpoints,
    stop=stop,
    step=jit_step(plan),
    writer=writer,
    busy=busy,
    monitor=make_monitor(plan, busy, began),
    watchdog=watchdog,
    bench=Bench(plan.model, plan.config.loss, plan.reader),
    start_evaluated=agreed(first and start in evaluate.steps_in(folder)),
    watch=make_watch(plan, folder),
  )


def describe(plan: Plan, folder: pathlib.Path):
  """Writes down, on the first process, what the run is made with."""
  if jax.process_index() == 0:
    with workdir.writing(folder):
      workdir.write_config(folder, plan.config)
      parameters = meshes.table(flatten(plan.abstract.params))
      files.write_text(folder / workdir.PARAMETERS, parameters)


def make_watch(plan: Plan, folder) -> early_stopping.Watch:
  """What follows the evaluations, from those that metrics.jsonl already holds on."""
  settings, first = plan.config.early_stopping, jax.process_index() == 0
  lines = metrics_log.read(folder) if first and settings.metric else []
  best = early_stopping.best_of(lines, settings.metric)
  return early_stopping.Watch(settings, early_stopping.agreed(best))


def agreed(answer: bool) -> bool:
  """The first process's answer, on every process."""
  if jax.process_count() == 1:
    return answer
  return bool(multihost_utils.broadcast_one_to_all(np.array(answer)))


def make_monitor(plan: Plan, busy: Busy, began: float | None) -> Monitor:
  """The monitor of a run."""
  # Frozen parameters have no gradients, whose cost the peak would be compared with.
  whole = trained_count(plan) == total_count(plan)
  known = chip(jax.devices()[0].device_kind) if whole else None
  return Monitor(
    batch_size=plan.config.batch_size,
    total_steps=plan.steps.total,
    epoch_examples=len(plan.data.train),
    flops_per_image=plan.objective.training_flops(plan.config.data.image_size),
    peak_flops=known and known.peak_flops * plan.mesh.size,
    busy=busy.seconds,
    began=began,
  )


def loop(run: Run, state: states.TrainState, start: int) -> bool:
  """All steps after `start`; returns as `train`.

  The order of one step:
    1. take the batch, which is already on the devices, and dispatch the step;
    2. while the devices work, read the metrics of the step before: log them, stop on trouble;
    3. agree with all hosts whether to stop;
    4. where due, once the metrics of this very step are read: evaluate, then save. Also saved is
       what was just found to be the best so far.
  Inside 1 and 2 nothing moves between host and devices but where the code says so.
  """
  run.monitor.start(start)
  if start and not run.start_evaluated and not evaluated(run, state, start):
    return False
  if run.watch.enough:
    return True
  plan = run.plan
  read = plan.reader.training(plan.data.train, seed=plan.config.seed, start_step=start)
  with plan.reader.ahead(read) as batches:
    return steps_on(run, state, start, batches)


def steps_on(run: Run, state: states.TrainState, start: int, batches) -> bool:
  """The steps of `loop`, on batches that are on the devices."""
  steps, monitor, before = run.plan.steps, run.monitor, None
  for step in range(start + 1, steps.total + 1):
    profile(run, step - start)
    with jax.transfer_guard("disallow"):
      with monitor.waiting():
        batch = next(batches)
      run.watchdog.beat(f"step {step}")  # who waits for a batch is behind those that have theirs
      with monitor.dispatching():
        state, metrics = run.step(state, batch)
      run.stop.hold()
      run.busy.dispatched(metrics)
      settle(run, before)
      before = step, metrics
    check_saved(run)
    stopping, ending = run.stop.agreed(step), step == steps.total
    if stopping or ending or due(step, steps.evaluate) or due(step, steps.save):
      settle(run, before)
      before = None
      stopping = stopping or not evaluated(run, state, step)
      ending = ending or run.watch.enough
      if stopping:
        run.writer.say(messages.stopping(step))
      if stopping or ending or due(step, steps.save) or step == run.watch.best.step:
        save(run, state)
    if stopping or ending:
      end_profile(run, step - start)
      return not stopping
  return True


def due(step: int, every: int) -> bool:
  """Whether something done each `every` steps (0: never) is done after `step`."""
  return every > 0 and step % every == 0


def settle(run: Run, pending):
  """Reads a step's metrics, stops the run on trouble, logs them where due."""
  if pending is None:
    return
  step, metrics = pending
  metrics = jax.device_get(metrics)
  check_finite(run, step, metrics)
  check_examples(run, step, int(metrics["bad_examples"]))
  if due(step, run.plan.steps.log) or step == run.plan.steps.total:
    line = {name: float(value) for name, value in metrics.items()} | run.monitor.report(step)
    line["data/bad_examples"] = int(line.pop("bad_examples"))
    line["skipped"] = int(line["skipped"])
    run.writer.write(step, line)
    run.writer.progress(metrics_log.progress_line(step, run.plan.steps.total, line))


def check_finite(run: Run, step: int, metrics):
  """Raises TrainingError where an update was left out and may not be, or was itself not finite."""
  left_out, action = int(metrics["skipped"]), run.plan.config.non_finite
  applied = np.isfinite(metrics["update_norm"])
  if not left_out and applied:
    return
  what = (
    f"step {step}: loss {metrics['loss']}, gradient norm {metrics['grad_norm']}, update norm "
    f"{metrics['update_norm']}" + ("; the update was left out" if left_out else "")
  )
  if applied and action.action == "skip" and left_out <= action.limit:
    run.writer.say(f"Not finite at {what} ({left_out} of at most {action.limit} in a row).")
    return
  last = run.checkpoints.last_step()
  good = f"{run.folder}/checkpoints/{last}" if last else "none yet"
  also = {
    "stop": ", or set config.non_finite.action=skip",
    "skip": ", or raise config.non_finite.limit",
  }
  advice = "Lower config.schedule.learning_rate" + (also[action.action] if left_out else "")
  raise TrainingError(
    f"Not finite at {what}. Last good checkpoint: {good}. {advice}; then start again."
  )


def check_examples(run: Run, step: int, bad: int):
  """Raises TrainingError where too large a share of the images is broken.

  The share is taken of at least 1,000 images, so that one early broken image stops nothing.
  """
  data, seen = run.plan.config.data, step * run.plan.config.batch_size
  if bad > data.bad_limit * max(seen, 1000):
    raise TrainingError(
      f"{bad} of {seen} training images up to step {step} could not be decoded, more than "
      f"config.data.bad_limit={data.bad_limit}; their names are in the log above. Mend or remove "
      "them, or raise the limit."
    )


def complete(run: Run, finished: bool):
  """What follows the last step of this command: all is on disk, curves are drawn, the user is told.

  Raises:
    SaveError: the last checkpoint could not be saved.
  """
  with run.monitor.paused("checkpoint"):
    check_saved(run, last=True)
  run.writer.complete()
  if jax.process_index() != 0:
    return
  if finished:
    with run.monitor.paused("plots"), workdir.writing(run.folder):
      curves.curves(run.folder, registry.curve)
  said = messages.conclusion(
    run.plan.config,
    run.folder,
    finished=finished,
    last=run.checkpoints.last_step(),
    account=run.monitor.account(),
    watch=run.watch,
  )
  run.writer.say(said)


def evaluated(run: Run, state: states.TrainState, step: int) -> bool:
  """Evaluates where that is due; False where a signal cut it short."""
  steps = run.plan.steps
  asked = run.plan.data.evaluations and (due(step, steps.evaluate) or step == steps.total)
  if not asked:
    return True

  def stop():
    run.watchdog.beat(f"the evaluation after step {step}")
    return run.stop.alone()

  bench = dataclasses.replace(run.bench, stop=stop)
  with run.monitor.paused("evaluation"):
    try:
      found = evaluate.results(run.plan.data.evaluations, bench, states.for_evaluation(state))
    except GivenUp:
      return False
  figures = evaluate.figures_of(found)
  run.watch.note(step, figures)
  run.writer.write(step, figures)
  run.writer.say(f"step {step}/{steps.total}  " + registry.in_words(figures))
  return True


def save(run: Run, state: states.TrainState):
  """Starts saving the state with all that its later users need."""
  run.watchdog.beat("a checkpoint")
  with run.monitor.paused("checkpoint"):
    check_saved(run, wait=True)
    run.checkpoints.save(state, meta_of(run.plan), best=run.watch.best.step)


def meta_of(plan: Plan) -> dict:
  """What a checkpoint says of the run that saved it."""
  return {"config": to_dict(plan.config), "class_names": list(plan.data.train.class_names)}


def check_saved(run: Run, *, wait: bool = False, last: bool = False):
  """Says that a save failed and what follows; the `last` of a run must succeed.

  Raises:
    SaveError: it failed, and was the last or config.checkpoint.on_failure is "stop".
  """
  failure = run.checkpoints.failure(wait=wait or last)
  if not failure:
    return
  if last or run.plan.config.checkpoint.on_failure == "stop":
    raise SaveError(
      f"{failure}. Make room, or make the folder writable, and start the same command again."
    )
  run.writer.say(f"{failure}. The run goes on and saves again when that is due.")


def profile(run: Run, step: int):
  """Starts and ends the trace before `step`, counted from this process's first."""
  config = run.plan.config.profile
  if config.steps and step == config.first_step:
    jax.profiler.start_trace(run.folder / "profile")
  if step == config.first_step + config.steps:
    end_profile(run, step - 1)


def end_profile(run: Run, step: int):
  """Ends the trace where one is under way after `step`."""
  config = run.plan.config.profile
  if config.first_step <= step < config.first_step + config.steps:
    jax.profiler.stop_trace()
    run.writer.say(f"Profile of {step - config.first_step + 1} steps: {run.folder / 'profile'}")
