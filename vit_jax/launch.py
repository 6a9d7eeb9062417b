"""From settings to the end of a run: checks, the cheapest first, then the run and its loop."""

import contextlib
import dataclasses
import math
import time
from collections.abc import Sequence

import jax

from vit_jax.config import AUTO, Config, ConfigError, to_dict
from vit_jax.config.fields import is_auto, switched_on
from vit_jax.config.resolve import Facts, check_known, resolve
from vit_jax.data import identity
from vit_jax.data.batches import Reader
from vit_jax.devices import hosts as joining
from vit_jax.devices import mesh as meshes
from vit_jax.devices import watchdog as watchdogs
from vit_jax.devices.hosts import Hosts
from vit_jax.evaluation import evaluate, evaluated_model
from vit_jax.evaluation import evaluations as evaluation
from vit_jax.process import agreement, program
from vit_jax.process.console import StopRequest
from vit_jax.process.progress import SILENT, NoProgress, Progress
from vit_jax.registry import CALLBACKS
from vit_jax.storage import checkpoint, files, workdir
from vit_jax.storage.base import Retry
from vit_jax.storage.metrics_log import NoWriter, Writer
from vit_jax.storage.paths import Path
from vit_jax.storage.saving import Checkpoints
from vit_jax.storage.tree import flatten
from vit_jax.training import checks, fingerprint, init_from, pace, start, steps
from vit_jax.training import facts as run_facts
from vit_jax.training import run as runs
from vit_jax.training.callbacks import Checkpointing, Evaluation, Metrics, Profile, Session
from vit_jax.training.early_stopping import EarlyStopping
from vit_jax.training.facts import LATER
from vit_jax.training.init_from import Initial
from vit_jax.training.loop import Callback, Loop
from vit_jax.training.run import OpenedData, Run
from vit_jax.training.speed import DeviceTimer, Monitor
from vit_jax.training.start import Recorded

# A smaller batch, accumulation and remat do not help: nothing is computed yet.
TOO_LITTLE_TO_START = (
  "Split the parameters over more devices by config.mesh.fsdp, take a smaller model, or, for a new "
  "run, set config.optimizer.moment_dtype=bfloat16."
)


def launch(
  config: Config,
  folder: Path,
  stop: StopRequest,
  *,
  mode: str,
  hosts: Hosts,
  began: float | None = None,
  given: frozenset[str] = frozenset(),
  average: bool = True,
  progress: Progress | NoProgress = SILENT,
) -> bool:
  """Trains or evaluates; returns False if a signal stopped the training.

  Args:
    config: the settings.
    folder: the workdir.
    stop: asked at every step of training.
    mode: "train" or "evaluate".
    hosts: how this process finds the others, from the command line.
    began: when the command began, by time.monotonic(); None: now.
    given: the settings that the command line names; an evaluation takes them instead of the
      settings recorded with the weights.
    average: whether an evaluation scores the moving average of the parameters, if there is one.
    progress: shows what is done until the first step or the evaluation begins.

  Raises:
    ConfigError: a setting, the data or the weights are wrong. It is raised before any device is
      touched, unless the check depends on the devices or on the arrays of the weights.
    RunError: the run cannot go on.
  """
  if mode == "evaluate":
    launch_evaluation(config, folder, hosts, given, average=average, progress=progress)
    return True
  began = time.monotonic() if began is None else began
  workdir.check_links(folder)
  if not average:
    raise ConfigError(
      "--raw-params has no effect in training: add --mode=evaluate, or leave it out. To start from "
      "the parameters of a run and not from their average, export them: vit-jax export "
      "--raw-params --source=RUN --output=FILE."
    )
  with fingerprint.refusal_told(hosts):
    program.check_jax()
    recorded = start.read_recorded(folder)
    start.check_saved(recorded)
    asked = start.as_begun(config, recorded)
    config, data, facts = open_run(asked, recorded, hosts, progress)

  def told():
    newest = "none" if recorded.new else f"step {recorded.step}"
    return fingerprint.of_start(config, newest, data.identities)

  fingerprint.connect(config, hosts, told)
  if jax.process_count() > 1:
    stop.join()
  run, initial = make_run(asked, data, facts, recorded, progress)
  del facts  # and with them the weights as they were read
  seconds = config.stall_seconds
  with contextlib.ExitStack() as held:
    # Only now: a run that is refused leaves no folder.
    with joining.told("workdir", seconds=seconds):
      held.enter_context(workdir.locked(folder, first=jax.process_index() == 0))
    if jax.process_count() > 1:
      joining.compare_processes("workdir", {}, seconds=seconds)
      workdir.check_shared(folder)
    return train(run, folder, stop, initial, began, progress)


def open_run(
  asked: Config,
  recorded: Recorded,
  hosts: Hosts,
  progress: Progress | NoProgress = SILENT,
) -> tuple[Config, OpenedData, Facts]:
  """Checks the settings of a training run and opens its data; no device is touched.

  Returns:
    The settings, resolved by the data, the weights and the steps so far; the data; and the facts
    for settings that wait for the devices.
  """
  facts = run_facts.of_start()
  if asked.init_from:
    progress.doing(f"reading {asked.init_from}")
  config = resolve(asked, facts, recorded.config)
  checks.check_before_data(asked, config)
  joining.check(hosts)
  opened = runs.open_training(config, progress)
  facts |= run_facts.of_data(opened[0], config)
  config = resolve(asked, facts, recorded.config)
  check_known(config, LATER)
  checks.check(asked, config)
  start.check_start(config, recorded)
  data = runs.open_data(config, start.trained_on(config, recorded), opened)
  total = steps.durations_in_steps(config, len(data.train), recorded.images).total
  start.check_changes(config, recorded, total, data.identities, data.train.class_names)
  return config, data, facts


def make_run(
  asked: Config,
  data: OpenedData,
  facts: Facts,
  recorded: Recorded,
  progress: Progress | NoProgress = SILENT,
) -> tuple[Run, Initial | None]:
  """Makes the run on the devices that are there, and reads the weights that it starts from."""

  def make(config: Config) -> Run:
    return runs.make(config, data, taken=recorded.images)

  initial = None
  progress.doing("starting the devices")
  with joining.told("weights", seconds=asked.stall_seconds):
    facts = {**facts, **run_facts.of_devices()}
    known = start.suiting_devices(recorded.config, resolve(asked, facts, recorded.config))
    config = resolve(asked, facts, known)
    run = make(config)
    for kind in switched_on(CALLBACKS, config):
      kind.check(config, run.mesh.devices.flat[0])
    if recorded.new and config.init_from:
      source = facts["start"](config).weights
      initial = init_from.read_initial(config, run.objective, data.train.class_names, source)
  if jax.process_count() > 1:
    weights = {}
    if initial:
      weights = fingerprint.of_weights(initial.params)
    weights |= fingerprint.of_settings(config)
    joining.compare_processes("weights", weights, seconds=config.stall_seconds)
  check_parameters(run, recorded, initial)
  if config.accumulation == AUTO:  # after the weights: it takes longer than to refuse them
    progress.doing("compiling a step, to see how much memory it needs")
    facts["parts"] = lambda _: pace.fewest_parts(config, make)
    run = make(resolve(asked, facts, known))
  left = start.steps_left(recorded, config.early_stopping, run.steps.total)
  run = dataclasses.replace(run, left=left)
  timed = is_auto(asked.duration) or asked.batch_size == AUTO
  if timed and agreement.broadcast_bool(left):
    progress.doing("timing a few steps")
    run = dataclasses.replace(run, seconds=pace.expected_seconds(run))
  return run, initial


def check_parameters(run: Run, recorded: Recorded, initial: Initial | None):
  """Checks the parameters that a run goes on with, or begins with.

  Raises:
    ConfigError: the newest checkpoint does not fit the run, or new parameters stay as they are.
  """
  if not recorded.new:
    start.check_fits(run, recorded)
    return
  new = set(flatten(run.abstract.params))
  if initial:
    new -= flatten(initial.params).keys()
    init_from.check_trained(new, run.trainable)
  run.config.optimizer.check_start(run.config, new)


def train(
  run: Run,
  folder: Path,
  stop: StopRequest,
  initial: Initial | None = None,
  began: float | None = None,
  progress: Progress | NoProgress = SILENT,
) -> bool:
  """Trains from the newest checkpoint of `folder`, or from the start, to the end.

  Args:
    run: the run.
    folder: its workdir.
    stop: asked at every step.
    initial: parameters that replace the initial ones in a fresh run; None: keep those.
    began: when the command began, by time.monotonic(); None: now.
    progress: shows what is done before the first step.

  Returns:
    True at the end; False if a signal stopped the run, its state saved.

  Raises:
    TrainingError: losses that are not finite, or too many broken images.
    RunError: the devices have too little memory.
    WriteError: the workdir cannot be written to.
    CheckpointError: all checkpoints are damaged.
    SaveError: a checkpoint cannot be saved.
    Miscomputed: a device computed wrongly.
    ConfigError: the checkpoint does not fit the config.
  """
  with (
    watchdogs.watching(run.config.stall_seconds, folder) as watchdog,
    contextlib.closing(open_checkpoints(run, folder)) as checkpoints,
    DeviceTimer() as devices,
    run.compiling() as update,
  ):
    progress.doing("preparing the state")
    with watchdog.guarded(too_little=TOO_LITTLE_TO_START):
      begin = start.start_state(run, checkpoints)
    # The checkpoint may be an earlier one than the newest, if that is damaged.
    planned, run = run, run.after(begin.images, begin.changed)
    if run.steps.course != planned.steps.course:
      update = run.update
    progress.clear()
    with contextlib.closing(open_writer(run, folder, begin.lines)) as writer:
      early_stopping = EarlyStopping.of_run(run.config.early_stopping, folder, begin.best)
      session = Session(
        folder=folder,
        checkpoints=checkpoints,
        writer=writer,
        monitor=Monitor.of_run(run, devices, began),
        watchdog=watchdog,
        stop=stop,
        early_stopping=early_stopping,
        left=run.resume_point.step < run.steps.total and not early_stopping.should_stop,
        since=begin.since,
      )
      if session.left:
        record(run, folder)
      state = begin.state
      if begin.fresh and initial is not None:
        with watchdog.guarded(too_little=TOO_LITTLE_TO_START):
          state = init_from.put(initial, state, run.objective, run.optimizer, run.trainable)
        writer.say(initial.report)
      with watchdog.guarded():
        observers = callbacks(run, session)
        for callback in observers:
          update = callback.update(update)
        return Loop(run, update, observers, stop, session.monitor, watchdog).train(state)


def callbacks(run: Run, session: Session) -> Sequence[Callback]:
  """The callbacks of a run, in the order that `vit_jax.training.loop` explains.

  Callbacks of the registry come first, so they end last, after everything is saved.
  """
  kinds = *switched_on(CALLBACKS, run.config), Metrics, Checkpointing, Evaluation, Profile
  return [kind(run, session) for kind in kinds]


def open_checkpoints(run: Run, folder: Path) -> Checkpoints:
  """The checkpoints of the run."""
  with workdir.writing(folder):
    return Checkpoints(folder, keep_last=run.config.checkpoint.keep_last, keep_every=run.steps.keep)


def open_writer(run: Run, folder: Path, lines: int) -> Writer | NoWriter:
  """The writer of metrics, on the first process only; removes lines of steps to be repeated."""
  if jax.process_index() != 0:
    return NoWriter()
  retry = Retry(run.config.checkpoint.retry_seconds)
  return Writer(folder, start_step=run.resume_point.step, retry=retry, lines=lines)


def record(run: Run, folder: Path):
  """Writes config.json and the table of parameters, on the first process."""
  if jax.process_index() == 0:
    with workdir.writing(folder):
      workdir.write_config(folder, to_dict(run.config))
      files.write_text(
        folder / workdir.PARAMETERS, meshes.parameter_table(flatten(run.abstract.params))
      )


def launch_evaluation(
  config: Config,
  folder: Path,
  hosts: Hosts,
  given: frozenset[str],
  *,
  average: bool,
  progress: Progress | NoProgress = SILENT,
) -> dict[str, float]:
  """Evaluates and returns the metrics; needs neither training data nor a length of training.

  Args and raises: as `launch`.
  """
  workdir.check_links(folder)
  with fingerprint.refusal_told(hosts):
    program.check_jax()
    place = evaluated_model.place_of(config, folder, given)
    config = resolve(config, run_facts.of_evaluation(place))
    config = evaluated_model.anew(config, given)
    checks.check_evaluation(config)
    joining.check(hosts)
    trained_on = start.history_of(place, config.evaluate_step)
    evaluations = evaluation.open_alone(config, trained_on, progress)
    checks.check_used(config, given)
    # Not which one: a run that trains meanwhile saves others, and the first process chooses.
    newest = "there" if checkpoint.available(folder) else "none"

  def told():
    return fingerprint.of_start(config, newest, identity.of_all(evaluations.datasets, progress))

  fingerprint.connect(config, hosts, told)
  with joining.ended_by_sigterm():
    facts = run_facts.of_devices()
    progress.doing("reading the weights")
    with joining.told("weights", seconds=config.stall_seconds):
      scored = evaluated_model.read_evaluated(
        config, evaluations, folder, given, facts, average=average
      )
      if jax.process_index() == 0:  # only now: what is refused leaves no folder
        evaluate.check_folder(scored, folder)
    if jax.process_count() > 1:
      weights = fingerprint.of_weights(scored.params)
      weights |= fingerprint.of_settings(scored.settings) | fingerprint.of_head(scored.head.names)
      joining.compare_processes("weights", weights, seconds=config.stall_seconds)
    reader = reader_of(scored.settings, evaluations)
    progress.clear()
    seconds = config.stall_seconds
    metrics = evaluate.evaluate(scored, evaluations, reader, folder, stall_seconds=seconds)
    if jax.process_index() == 0:
      progress.doing("drawing confusion matrices")
      for kind in switched_on(CALLBACKS, config):
        kind.evaluated(folder)
    return metrics


def reader_of(config: Config, evaluations: evaluation.Evaluations) -> Reader:
  """The reader that feeds evaluations on all devices.

  It reads parts as small as those of the training, which fit into memory, or larger ones, if those
  cannot be split over the devices.

  Raises:
    ConfigError: the batch or the mesh does not suit the devices.
  """
  size = config.batch_size
  mesh = meshes.make(config.mesh, batch_size=size, accumulation=1)
  parts = math.gcd(config.parts, size // meshes.groups(mesh))
  channels = config.model.channels
  return Reader(config.data, mesh, size, parts, channels=channels, scored=evaluations.sizes)
