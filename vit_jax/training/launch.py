"""Starts a run from a resolved config: checks first, the cheapest before the others."""

import dataclasses
import os
import pathlib
import signal

import jax

from vit_jax.config import Config, ConfigError, Data
from vit_jax.data.batches import Reader
from vit_jax.devices import hosts as joining
from vit_jax.devices import mesh as meshes
from vit_jax.devices.hosts import Hosts
from vit_jax.evaluation import catalogue
from vit_jax.evaluation import evaluations as evaluation
from vit_jax.models import requirements
from vit_jax.process.signals import StopRequest
from vit_jax.storage import checkpoint, files, workdir
from vit_jax.training import checks, init_from, start, steps
from vit_jax.training import run as runs
from vit_jax.training.run import OpenedData, Run
from vit_jax.training.start import Recorded
from vit_jax.weights import Weights

CACHE = pathlib.Path("~/.cache/vit_jax/compiled")


def launch(
  config: Config,
  folder: pathlib.Path,
  stop: StopRequest,
  *,
  mode: str,
  hosts: Hosts,
  began: float | None = None,
  given: frozenset[str] = frozenset(),
  average: bool = True,
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

  Raises:
    ConfigError: a setting or the data is wrong. It is raised before any device is touched, unless
      the check depends on the number of devices.
    RunError: the run cannot go on.
  """
  workdir.check_links(folder)
  if mode == "evaluate":
    launch_evaluation(config, folder, hosts, given, average=average)
    return True
  if not average:
    raise ConfigError(
      "--no-average has no effect in training: add --mode=evaluate, or leave it out. To start from "
      "the parameters of a run and not from their average, export them: python tools/export.py "
      "--no-average --source=RUN --output=FILE."
    )
  recorded = start.read(folder)
  config, data, source = open_run(config, recorded, hosts)
  connect(config, hosts)
  if jax.process_count() > 1:
    stop.join()
  run, initial = make_run(config, data, recorded, source)
  from vit_jax.training.train import train

  # Only now: a run that is refused leaves no folder.
  with workdir.locked(folder, first=jax.process_index() == 0):
    return train(run, folder, stop, initial, began)


def open_run(
  config: Config, recorded: Recorded, hosts: Hosts
) -> tuple[Config, OpenedData, Weights | None]:
  """Checks the settings of a training run and opens its data; no device is touched.

  Returns:
    The settings, with what the data, the weights and the steps so far decide; the data; and the
    weights to start from, if they were read already.
  """
  config, source = start.resolved_model(config, recorded.settings)
  checks.check(config)
  joining.check(hosts)
  config = start.resolved_settings(config, recorded)
  weights = starts_from_weights(config, recorded)
  data = runs.open_data(config, start.history_of(weights) if weights else recorded.trained_on)
  model = config.model.with_classes(len(data.train.class_names) or 1)
  config = dataclasses.replace(config, model=model)
  checks.check_early_stopping(config.early_stopping, catalogue.names(config))  # of these classes
  total = steps.of_run(config, len(data.train), recorded.images).total
  start.check_changes_count(config, recorded, total)
  return config, data, source


def starts_from_weights(config: Config, recorded: Recorded) -> str:
  """config.init_from of a new run; "": a run that goes on does not need the weights any more."""
  return "" if recorded.settings else config.init_from


def make_run(
  config: Config, data: OpenedData, recorded: Recorded, source: Weights | None
) -> tuple[Run, init_from.Initial | None]:
  """Makes the run on the devices that are there, and reads the weights that it starts from."""
  model = start.resolved_type(config.model, recorded.settings, jax.default_backend())
  config = dataclasses.replace(config, model=model)
  run = runs.make(config, data, step=recorded.step, images=recorded.images.images)
  if not starts_from_weights(config, recorded):
    return run, None
  return run, init_from.read(config, run.objective, data.train.class_names, source)


def launch_evaluation(
  config: Config, folder: pathlib.Path, hosts: Hosts, given: frozenset[str], *, average: bool
):
  """Evaluates; training data and a length of training are not needed."""
  checks.check_evaluation(config)
  joining.check(hosts)
  place = str(folder) if checkpoint.available(folder) else config.init_from
  settings = start.settings_of(place, config.evaluate_step)
  trained_on = start.history_of(place, config.evaluate_step)
  evaluations = evaluation.open_alone(config, trained_on)
  if not evaluations.heads():
    checks.check_without_head(given)
  connect(config, hosts)
  # SIGTERM ends an evaluation at once; JAX's own handler would wait for a training step.
  signal.signal(signal.SIGTERM, signal.SIG_DFL)
  model = start.resolved_type(config.model, settings, jax.default_backend())
  config = dataclasses.replace(config, model=model)
  from vit_jax.evaluation import evaluated_model
  from vit_jax.evaluation.evaluate import evaluate

  scored = evaluated_model.read(config, evaluations, folder, given, average=average)
  reader = reader_of(config, scored.model, scored.settings.data)
  evaluate(scored, evaluations, reader, folder, stall_seconds=config.stall_seconds)


def reader_of(config: Config, model, data: Data) -> Reader:
  """The reader that feeds the evaluation of `model`, a Flax module, with `data` on all devices.

  Raises:
    ConfigError: the batch, the mesh or the attention does not suit the devices.
  """
  split = dict(batch_size=config.batch_size, accumulation=config.accumulation)
  mesh = meshes.make(config.mesh, **split)
  device = mesh.devices.flat[0]
  requirements.check_attention(model, data.image_size, device, training=False)
  return Reader(data, mesh, **split)


def connect(config: Config, hosts: Hosts):
  """Connects the processes of this command, before any of them touches a device."""
  joining.connect(hosts, stall_seconds=config.stall_seconds)
  keep_compiled_programs()


def keep_compiled_programs():
  """Keeps compiled programs on disk, so that the next start is quick.

  They are not in the workdir: JAX runs the programs that it finds, and a workdir may come from a
  stranger.
  """
  if os.environ.get("JAX_COMPILATION_CACHE_DIR"):
    return
  try:
    folder = CACHE.expanduser()
    files.make_folder(folder)
    files.check_writable(folder)
  except (OSError, RuntimeError) as error:  # RuntimeError: this user has no home folder
    print(f"Compiled programs are not kept for the next start: {error}", flush=True)
    return
  jax.config.update("jax_compilation_cache_dir", str(folder))
  jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
