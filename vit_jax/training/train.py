"""Trains a run: from the newest checkpoint of its folder, or from the start, to the end."""

import contextlib
import pathlib
from collections.abc import Callable, Sequence

import jax

from vit_jax.config import to_dict
from vit_jax.devices import mesh as meshes
from vit_jax.devices import watchdog as watchdogs
from vit_jax.devices.chips import chip
from vit_jax.evaluation import catalogue
from vit_jax.learning.state import TrainState
from vit_jax.plots import curves
from vit_jax.process.retry import Retry
from vit_jax.process.signals import StopRequest
from vit_jax.process.text import one_line
from vit_jax.report import report
from vit_jax.storage import files, metrics_log, workdir
from vit_jax.storage.metrics_log import NoWriter, Writer
from vit_jax.storage.saving import Checkpoints
from vit_jax.storage.tree import flatten
from vit_jax.training import early_stopping, init_from, messages, provenance
from vit_jax.training.callbacks import Evaluation, Metrics, Profile, Session
from vit_jax.training.checkpointing import Checkpointing
from vit_jax.training.early_stopping import EarlyStopping
from vit_jax.training.init_from import Initial
from vit_jax.training.loop import Callback, Loop
from vit_jax.training.run import Run
from vit_jax.training.speed import DeviceTimer, Monitor
from vit_jax.training.start import StartState, start_state

# The batch, its parts and remat do not help: nothing is computed yet.
TOO_LITTLE_TO_START = (
  "Split the parameters over more devices by config.mesh.fsdp, take a smaller model, or, for a new "
  "run, set config.optimizer.moment_dtype=bfloat16."
)


def train(
  run: Run,
  folder: pathlib.Path,
  stop: StopRequest,
  initial: Initial | None = None,
  began: float | None = None,
) -> bool:
  """Trains from the newest checkpoint of `folder`, or from the start, to the end.

  Args:
    run: the run.
    folder: its workdir.
    stop: asked at every step.
    initial: parameters that replace the initial ones in a fresh run; None: keep those.
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
    watchdogs.of_run(run.config.stall_seconds, folder) as watchdog,
    contextlib.closing(open_checkpoints(run, folder)) as checkpoints,
    DeviceTimer() as devices,
  ):
    with watchdog.guarded(too_little=TOO_LITTLE_TO_START):
      start = start_state(run, checkpoints)
    # The checkpoint may be an earlier one than the newest, if that is damaged.
    run = run.after(int(start.state.step), start.images)
    with contextlib.closing(open_writer(run, folder)) as writer:
      session = Session(
        folder=folder,
        checkpoints=checkpoints,
        writer=writer,
        monitor=make_monitor(run, devices, began),
        watchdog=watchdog,
        stop=stop,
        early_stopping=make_early_stopping(run, folder),
      )
      with watchdog.guarded(too_little=TOO_LITTLE_TO_START):
        state = log_start(run, session, start, initial)
      with watchdog.guarded():
        loop = Loop(run, callbacks(run, session), stop, session.monitor, watchdog)
        finished = loop.train(state)
      with watchdog.guarded():
        finish(run, session, finished=finished)
  return finished


def open_checkpoints(run: Run, folder: pathlib.Path) -> Checkpoints:
  """The checkpoints of the run."""
  with workdir.writing(folder):
    return Checkpoints(folder, keep_last=run.config.checkpoint.keep_last, keep_every=run.steps.keep)


def open_writer(run: Run, folder: pathlib.Path) -> Writer | NoWriter:
  """The writer of metrics, on the first process only; removes lines of steps that come again."""
  if jax.process_index() != 0:
    return NoWriter()
  retry = Retry(run.config.checkpoint.retry_seconds)
  return Writer(folder, start_step=run.images.step, retry=retry)


def make_monitor(run: Run, devices: DeviceTimer, began: float | None) -> Monitor:
  """The monitor of a run."""
  # With frozen parameters MFU would be wrong: its count of FLOPs includes all gradients.
  whole = run.trained_count() == run.parameter_count()
  known = chip(jax.devices()[0].device_kind) if whole else None
  return Monitor(
    images=run.images,
    total_steps=run.steps.total,
    epoch_examples=len(run.data.train),
    flops_per_image=run.objective.training_flops(run.config.data.image_size),
    peak_flops=known and known.peak_flops * run.mesh.size,
    devices=devices,
    began=began,
  )


def make_early_stopping(run: Run, folder: pathlib.Path) -> EarlyStopping:
  """The early stopping of the run, with the evaluations that metrics.jsonl already holds."""
  settings, first = run.config.early_stopping, jax.process_index() == 0
  lines = metrics_log.read(folder) if first and settings.metric else []
  best = early_stopping.best_of(lines, settings.metric)
  return EarlyStopping(settings, early_stopping.agreed(best))


def callbacks(run: Run, session: Session) -> Sequence[Callback]:
  """What happens beside the steps, in the order that `vit_jax.training.loop` explains."""
  return (
    Metrics(run, session),
    Evaluation(run, session),
    Checkpointing(run, session, run.description()),
    Profile(run, session),
  )


def log_start(run: Run, session: Session, start: StartState, initial: Initial | None) -> TrainState:
  """Records the settings, tells the user, and returns the state that training starts from."""
  say, state = session.writer.say, start.state
  left = run.images.step < run.steps.total and not session.early_stopping.should_stop
  if left:
    record(run, session.folder, start.changed)
  if start.fresh and initial is not None:
    state = init_from.put(initial, state)
    say(initial.report)
  say(messages.introduction(run, session.folder, left=left, changed=start.changed))
  return state


def record(run: Run, folder: pathlib.Path, changed: Sequence[str]):
  """Writes config.json, the table of parameters and facts of this start, on the first process."""
  if jax.process_index() == 0:
    with workdir.writing(folder):
      workdir.write_config(folder, to_dict(run.config))
      files.write_text(folder / workdir.PARAMETERS, meshes.table(flatten(run.abstract.params)))
      provenance.record(run, folder, changed)


def finish(run: Run, session: Session, *, finished: bool):
  """Finishes all writing after the last step of this command, draws curves, tells the user.

  Raises:
    WriteError: the metrics could not be written.
  """
  folder, writer, monitor = session.folder, session.writer, session.monitor
  writer.complete(lambda: session.watchdog.beat("writing metrics"))
  if jax.process_index() != 0:
    return
  if finished:
    with monitor.paused("plots"):
      with workdir.writing(folder):
        curves.curves(folder, catalogue.curve)
      if run.config.report:
        write_report(folder, writer.say)
  writer.say(
    messages.conclusion(
      folder,
      finished=finished,
      last=session.checkpoints.last_step(),
      account=monitor.account(),
      early_stopping=session.early_stopping,
      head=run.config.objective.trains_head,
    )
  )


def write_report(folder: pathlib.Path, say: Callable[[str], None]):
  """Writes WORKDIR/report.html; a failure is a warning."""
  try:
    report.write([folder], folder / report.REPORT, inside=False)
  except Exception as error:  # the run is done and saved: nothing here may make it fail
    reason = one_line(f"{type(error).__name__}: {error}")
    say(f"{folder / report.REPORT} cannot be written ({reason}). The run itself is complete.")
