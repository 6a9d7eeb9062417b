"""One training run: restores or creates its state, trains to the end, and reports."""

import contextlib
import dataclasses
import functools
import pathlib
from collections.abc import Callable
from typing import NamedTuple

import jax

from vit_jax.config import to_dict
from vit_jax.config.changes import changes
from vit_jax.data import history
from vit_jax.devices import mesh as meshes
from vit_jax.devices import watchdog as watchdogs
from vit_jax.devices.chips import chip
from vit_jax.evaluation import evaluate, registry
from vit_jax.evaluation.spec import EvalContext
from vit_jax.learning import state as states
from vit_jax.learning.state import TrainState
from vit_jax.plots import curves
from vit_jax.process import agreement
from vit_jax.process.retry import Retry
from vit_jax.process.signals import StopRequest
from vit_jax.process.text import one_line
from vit_jax.report import report
from vit_jax.storage import files, metrics_log, workdir
from vit_jax.storage.metrics_log import NoWriter, Writer
from vit_jax.storage.saving import Checkpoints
from vit_jax.storage.tree import flatten
from vit_jax.training import early_stopping, init_from, messages, provenance
from vit_jax.training import plan as plans
from vit_jax.training.evaluator import Evaluator
from vit_jax.training.goodput import Busy
from vit_jax.training.init_from import Initial
from vit_jax.training.loop import Loop
from vit_jax.training.plan import Plan, jit_step, total_count, trained_count
from vit_jax.training.profiler import Profiler
from vit_jax.training.recorder import Limits, Recorder
from vit_jax.training.saver import Saver
from vit_jax.training.speed import Monitor
from vit_jax.training.steps import ImageCount, taken
from vit_jax.weights import average

# The batch, its parts and remat do not help: nothing is computed yet.
TOO_LITTLE_TO_START = (
  "Split the parameters over more devices by config.mesh.fsdp, take a smaller model, or, for a new "
  "run, set config.optimizer.moment_dtype=bfloat16."
)


class Begun(NamedTuple):
  """The state from which a run starts or resumes.

  Attributes:
    state: from the newest checkpoint, or freshly initialised.
    step: number of steps that are done; 0 if the state is fresh.
    fresh: whether there was no checkpoint.
    changed: settings that differ from those of the checkpoint.
    images: the training images of all steps so far, and of those to come.
  """

  state: TrainState
  step: int
  fresh: bool
  changed: list[str]
  images: ImageCount


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
    start_from: parameters that replace the initial ones in a fresh run; None: keep those.
    began: when the command began, by time.monotonic(); None: now.

  Returns:
    True at the end; False if a signal stopped the run, its state saved.

  Raises:
    TrainingError: losses that are not finite, or too many broken images.
    RunError: the devices have too little memory.
    WriteError: the workdir cannot be written to.
    CheckpointError: all checkpoints are damaged.
    SaveError: a checkpoint cannot be saved.
    ConfigError: the checkpoint does not fit the config.
  """
  with (
    watchdogs.of_run(plan.config.stall_seconds, folder) as watchdog,
    contextlib.closing(open_checkpoints(plan, folder)) as checkpoints,
    Busy() as busy,
  ):
    begun = watchdog.guarded(lambda: begin(plan, checkpoints), too_little=TOO_LITTLE_TO_START)
    plan = plans.after(plan, begun.images)  # an earlier one than the newest, if that is damaged
    with contextlib.closing(open_writer(plan, folder, begun.step)) as writer:
      monitor = make_monitor(plan, begun.images, busy, began)
      meta = meta_of(plan) | {"images": list(begun.images)}
      retry = Retry(plan.config.checkpoint.retry_seconds)
      saver = Saver(checkpoints, folder, meta, retry, plan.steps, writer, monitor, watchdog)
      loop = make_loop(plan, begun.images, folder, stop, busy, saver)
      state = watchdog.guarded(
        lambda: introduce(loop, plan, folder, begun, start_from), too_little=TOO_LITTLE_TO_START
      )
      finished = watchdog.guarded(lambda: go_through(loop, plan, folder, begun.images, state))
      watchdog.guarded(lambda: conclude(loop, plan, folder, finished))
  return finished


def open_checkpoints(plan: Plan, folder: pathlib.Path) -> Checkpoints:
  """The checkpoints of the run."""
  with workdir.writing(folder):
    return Checkpoints(
      folder, keep_last=plan.config.checkpoint.keep_last, keep_every=plan.steps.keep
    )


def begin(plan: Plan, checkpoints: Checkpoints) -> Begun:
  """Restores the newest checkpoint, or makes a fresh state."""
  state = checkpoints.restore(plan.abstract, meta_of(plan))
  if state is None:
    first = ImageCount(0, 0, plan.config.batch_size)
    return Begun(states.create(plan.init, plan.abstract), 0, True, [], first)
  step = int(state.step)
  meta = checkpoints.meta(step)
  images = ImageCount(step, taken(meta, step), plan.config.batch_size)
  return Begun(state, step, False, changes(meta["config"], to_dict(plan.config)), images)


def open_writer(plan: Plan, folder: pathlib.Path, step: int) -> Writer | NoWriter:
  """The writer of metrics, on the first process only; removes lines of steps after `step`."""
  if jax.process_index() != 0:
    return NoWriter()
  return Writer(folder, start_step=step, retry=Retry(plan.config.checkpoint.retry_seconds))


def make_loop(
  plan: Plan,
  images: ImageCount,
  folder: pathlib.Path,
  stop: StopRequest,
  busy: Busy,
  saver: Saver,
) -> Loop:
  """The loop of a run; jits the step."""
  config = plan.config
  writer, monitor, watchdog = saver.writer, saver.monitor, saver.watchdog
  limits = Limits(config.non_finite, config.data.bad_limit, images)
  evaluator = Evaluator(
    plan.data.evaluations,
    EvalContext(plan.model, config.loss, plan.reader, plan.objective.representation),
    plan.steps,
    make_watch(plan, folder),
    stop,
    writer,
    monitor,
    watchdog,
    folder,
    functools.partial(average.initial_share, dataclasses.asdict(config.optimizer)),
  )
  return Loop(
    steps=plan.steps,
    update=jit_step(plan),
    stop=stop,
    watchdog=watchdog,
    monitor=monitor,
    busy=busy,
    recorder=Recorder(limits, plan.steps, writer, monitor, saver),
    evaluator=evaluator,
    saver=saver,
    profiler=Profiler(config.profile, folder / "profile", writer.say),
  )


def introduce(
  loop: Loop, plan: Plan, folder: pathlib.Path, begun: Begun, start_from: Initial | None
) -> TrainState:
  """Records the settings, tells the user, and returns the state that training starts from."""
  say, state = loop.recorder.writer.say, begun.state
  left = begun.step < plan.steps.total and not loop.evaluator.watch.enough
  if left:
    describe(plan, folder, begun.step, begun.changed)
  if begun.fresh and start_from is not None:
    state = init_from.put(start_from, state)
    say(start_from.report)
  say(messages.introduction(plan, folder, begun.images, left=left, changed=begun.changed))
  return state


def go_through(
  loop: Loop, plan: Plan, folder: pathlib.Path, images: ImageCount, state: TrainState
) -> bool:
  """Trains all steps after those of `images`; returns as `train`."""
  start = images.step

  def batches():
    data = plan.data
    read = plan.reader.training(
      data.train, parts=data.parts, seed=plan.config.seed, start=images.images
    )
    return plan.reader.ahead(read)

  evaluated = agreement.answer_of_first(start in evaluate.steps_in(folder))
  return loop.run(state, start, batches, evaluated=evaluated)


def conclude(loop: Loop, plan: Plan, folder: pathlib.Path, finished: bool):
  """Finishes all writing after the last step of this command, draws curves, tells the user.

  Raises:
    WriteError: the metrics could not be written.
  """
  writer, monitor = loop.recorder.writer, loop.monitor
  writer.complete(lambda: loop.watchdog.beat("writing metrics"))
  if jax.process_index() != 0:
    return
  if finished:
    with monitor.paused("plots"), workdir.writing(folder):
      curves.curves(folder, registry.curve)
    if plan.config.report:
      with monitor.paused("plots"):
        write_report(folder, writer.say)
  said = messages.conclusion(
    folder,
    finished=finished,
    last=loop.saver.checkpoints.last_step(),
    account=monitor.account(),
    watch=loop.evaluator.watch,
    head=plan.objective.trains_head,
  )
  writer.say(said)


def write_report(folder: pathlib.Path, say: Callable[[str], None]):
  """Writes WORKDIR/report.html; a failure is a warning."""
  try:
    report.write([folder], folder / report.REPORT, inside=False)
  except Exception as error:  # the run is done and saved: nothing here may make it fail
    reason = one_line(f"{type(error).__name__}: {error}")
    say(f"{folder / report.REPORT} cannot be written ({reason}). The run itself is complete.")


def describe(plan: Plan, folder: pathlib.Path, step: int, changed: list[str]):
  """Writes config.json, the table of parameters and facts of this start, on the first process."""
  if jax.process_index() == 0:
    with workdir.writing(folder):
      workdir.write_config(folder, plan.config)
      parameters = meshes.table(flatten(plan.abstract.params))
      files.write_text(folder / workdir.PARAMETERS, parameters)
      provenance.record(plan, folder, step, changed)


def meta_of(plan: Plan) -> dict:
  """The description of the run that is saved in each checkpoint."""
  return {
    "config": to_dict(plan.config),
    "class_names": list(plan.data.train.class_names),
    "representation": plan.objective.representation,
    "trained_on": history.written((*plan.data.earlier, *plan.data.own)),
  }


def make_watch(plan: Plan, folder: pathlib.Path) -> early_stopping.Watch:
  """The early stopping of the run, with the evaluations that metrics.jsonl already holds."""
  settings, first = plan.config.early_stopping, jax.process_index() == 0
  lines = metrics_log.read(folder) if first and settings.metric else []
  best = early_stopping.best_of(lines, settings.metric)
  return early_stopping.Watch(settings, early_stopping.agreed(best))


def make_monitor(plan: Plan, images: ImageCount, busy: Busy, began: float | None) -> Monitor:
  """The monitor of a run."""
  # With frozen parameters MFU would be wrong: its count of FLOPs includes all gradients.
  whole = trained_count(plan) == total_count(plan)
  known = chip(jax.devices()[0].device_kind) if whole else None
  return Monitor(
    images=images,
    total_steps=plan.steps.total,
    epoch_examples=len(plan.data.train),
    flops_per_image=plan.objective.training_flops(plan.config.data.image_size),
    peak_flops=known and known.peak_flops * plan.mesh.size,
    busy=busy.seconds,
    began=began,
  )
