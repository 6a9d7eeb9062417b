"""Starts a run from a resolved config: checks first, the cheapest before the others."""

import dataclasses
import errno
import os
import pathlib
import signal

import jax

from vit_jax.config import Config, ConfigError, Data
from vit_jax.data.batches import Reader
from vit_jax.devices import hosts as joining
from vit_jax.devices import mesh as meshes
from vit_jax.devices.hosts import Hosts
from vit_jax.evaluation import opening as evaluation
from vit_jax.evaluation import registry
from vit_jax.models import requirements
from vit_jax.process.signals import StopRequest
from vit_jax.storage import checkpoint, files, workdir
from vit_jax.training import checks, init_from, model_of_weights, resumed, steps
from vit_jax.training import run as runs

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
  begun = resumed.read(folder)
  config = model_of_weights.completed(config, begun.config)
  checks.check(config)
  joining.check(hosts)
  config = resumed.going_on(config, begun)
  starts = config.init_from and not begun.config  # a run that resumes does not need the weights
  trained_on = resumed.history_of(config.init_from) if starts else begun.trained_on
  data = runs.open_data(config, trained_on)
  model = config.model.with_classes(len(data.train.class_names) or 1)
  config = dataclasses.replace(config, model=model)
  checks.check_early_stopping(config.early_stopping, registry.names(config))  # of these classes
  resumed.check_counts(config, begun, steps.of_run(config, len(data.train), begun.images).total)
  joining.connect(hosts, stall_seconds=config.stall_seconds)
  if jax.process_count() > 1:
    stop.join()
  prepare_jax()
  model = resumed.typed(config.model, begun.config, jax.default_backend())
  config = dataclasses.replace(config, model=model)
  start = init_from.read(config, data.train.class_names) if starts else None
  # Before the lock: a run that is refused leaves no folder.
  run = runs.make(config, data, step=begun.step, images=begun.images.images)
  from vit_jax.training.train import train

  with workdir.locked(folder, first=jax.process_index() == 0):
    return train(run, folder, stop, start, began)


def launch_evaluation(
  config: Config, folder: pathlib.Path, hosts: Hosts, given: frozenset[str], *, average: bool
):
  """Evaluates; training data and a length of training are not needed."""
  checks.check_evaluation(config)
  joining.check(hosts)
  place = str(folder) if checkpoint.available(folder) else config.init_from
  recorded = resumed.recorded(place, config.evaluate_step)
  trained_on = resumed.history_of(place, config.evaluate_step)
  evaluations = evaluation.open_alone(config, trained_on)
  if not evaluations.heads():
    checks.check_without_head(given)
  joining.connect(hosts, stall_seconds=config.stall_seconds)
  # SIGTERM ends an evaluation at once; JAX's own handler would wait for a training step.
  signal.signal(signal.SIGTERM, signal.SIG_DFL)
  prepare_jax()
  model = resumed.typed(config.model, recorded, jax.default_backend())
  config = dataclasses.replace(config, model=model)
  from vit_jax.evaluation import evaluated_model
  from vit_jax.evaluation.evaluate import evaluate

  read = evaluated_model.read(config, evaluations, folder, given, average=average)
  reader = reader_of(config, read.model, read.settings.data)
  evaluate(read, evaluations, reader, folder, stall_seconds=config.stall_seconds)


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


def prepare_jax():
  """Keeps compiled programs on disk, so that the next start is quick.

  They are not in the workdir: JAX runs the programs that it finds, and a workdir may come from a
  stranger.
  """
  if os.environ.get("JAX_COMPILATION_CACHE_DIR"):
    return
  try:
    folder = CACHE.expanduser()
    files.make_folder(folder)
    if not os.access(folder, os.W_OK | os.X_OK):
      raise PermissionError(errno.EACCES, "Permission denied", str(folder))
  except (OSError, RuntimeError) as error:  # RuntimeError: this user has no home folder
    print(f"Compiled programs are not kept for the next start: {error}", flush=True)
    return
  jax.config.update("jax_compilation_cache_dir", str(folder))
  jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
