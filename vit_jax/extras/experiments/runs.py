"""Runs of the main program as processes of their own; does not import JAX."""

import concurrent.futures
import dataclasses
import multiprocessing
import os
import signal
import subprocess
import threading
from typing import BinaryIO

from vit_jax import config as cfg
from vit_jax.config import plugins as loading
from vit_jax.process import text
from vit_jax.process.text import command
from vit_jax.storage import files, metrics_log
from vit_jax.storage.base import raised_as
from vit_jax.storage.paths import Path
from vit_jax.storage.workdir import CONFIG, EVALUATION

MAX_BYTES = 2**24  # limit for JSON files


@dataclasses.dataclass(frozen=True)
class Run:
  """One run of vit_jax.main.

  Attributes:
    name: describes the run in messages.
    recipe: the value of --config.
    folder: its workdir.
    overrides: --config.KEY=VALUE; the last value of a key counts.
    mode: "train", or "evaluate" for a run that only evaluates the weights config.init_from.
    average: whether such a run scores the moving average of the parameters, if there is one.
    before: the workdir of the run whose weights it starts from; None: there is none.
  """

  name: str
  recipe: str
  folder: Path
  overrides: tuple[str, ...] = ()
  mode: str = "train"
  average: bool = True
  before: Path | None = None

  def arguments(self) -> list[str]:
    """The arguments for python."""
    arguments = ["-m", "vit_jax.main", f"--config={self.recipe}", f"--workdir={self.folder}"]
    if self.mode != "train":
      arguments.append(f"--mode={self.mode}")
    if not self.average:
      arguments.append("--raw-params")
    return [*arguments, *self.overrides]

  def command(self) -> str:
    """The command, as a user would type it."""
    return command(["python", *self.arguments()])

  def result(self) -> dict[str, float] | None:
    """Its metrics; None if it is not done.

    Raises:
      RunError: its config.json or evaluation.json is damaged.
    """
    if self.mode == "train":
      return result(self.folder)
    return evaluated(self.folder)


def evaluated(folder: Path) -> dict[str, float] | None:
  """The metrics of an evaluation, as of step 0 since it trains nothing; None if it is not done.

  Raises:
    RunError: its evaluation.json is damaged.
  """
  path = folder / EVALUATION
  if not files.exists(path):
    return None
  words = lambda error: f"{path} is damaged ({error}): remove it to evaluate those weights again."
  with raised_as(cfg.RunError, words, OSError, ValueError):
    metrics = text.with_numbers(files.read_json(path, most=MAX_BYTES))
  return {"step": 0} | {key: value for key, value in metrics.items() if "/" in key}


def result(folder: Path) -> dict[str, float] | None:
  """The metrics of the evaluation after a run's last step; None if the run is not done.

  A length in epochs is converted to steps from its config.json and its last metrics.

  Raises:
    RunError: its config.json is damaged.
  """
  lines = metrics_log.read_lines(folder)
  last = next((line for line in reversed(lines) if line.get("data/epoch")), None)
  if last is None or not files.exists(folder / CONFIG):
    return None
  words = lambda error: (
    f"{folder / CONFIG} is damaged ({error}): bring it back, or remove {folder} to train "
    "that run again."
  )
  with raised_as(cfg.RunError, words, OSError, ValueError, TypeError, KeyError):
    config = files.read_json(folder / CONFIG, most=MAX_BYTES)
    images = last["data/images"]
    total = cfg.Duration(**config["duration"]).in_steps(
      batch_size=config["batch_size"],
      epoch_examples=round(images / last["data/epoch"]),
      step=last["step"],
      images=images,
    )
  for line in reversed(lines):
    if line["step"] == total and "loss" not in line and not metrics_log.unscored(line):
      return line
  return None


class Children:
  """A context manager that runs commands as processes and passes SIGTERM on to them.

  SIGINT is not passed on, because a terminal sends it to all processes. Commands may be called from
  several threads; the context manager belongs to the main one.
  """

  def __init__(self):
    self.asked = False
    self._processes = set()

  def __enter__(self):
    # Handlers, not SIG_IGN: the processes would inherit SIG_IGN.
    self._previous = {}
    for number in (signal.SIGTERM, signal.SIGINT):
      self._previous[number] = signal.signal(number, self._handle)
    return self

  def __exit__(self, *_):
    for number, handler in self._previous.items():
      signal.signal(number, handler)

  def _handle(self, number, _):
    self.asked = True
    if number == signal.SIGTERM:
      for process in tuple(self._processes):
        process.terminate()

  def call(self, command: list[str], output: BinaryIO) -> int:
    """Runs a command to its end and returns its exit status; `output` gets all that it prints."""
    with subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT) as process:
      self._processes.add(process)
      try:
        if self.asked:
          process.terminate()
        return process.wait()
      finally:
        self._processes.discard(process)


def in_new_process(function, *arguments, plugins: str = "", **named):
  """Calls a function in a fresh process, so that JAX is not loaded in this one.

  The process first imports `plugins`, as config.plugins names them.
  """
  spawn = multiprocessing.get_context("spawn")
  options = dict(initializer=begin_with, initargs=(plugins,))
  with concurrent.futures.ProcessPoolExecutor(1, spawn, **options) as pool:
    return pool.submit(function, *arguments, **named).result()


def begin_with(plugins: str):
  """Initialises a process of `in_new_process`."""
  end_with_parent()
  loading.load(plugins)


def end_with_parent():
  """Ends this process when its parent is gone; otherwise it would wait forever after kill -9."""

  def wait():
    multiprocessing.parent_process().join()
    os._exit(1)

  threading.Thread(target=wait, daemon=True).start()


def check_config(recipe: str, asked: cfg.Config, config: cfg.Config):
  """Checks a run as the main program checks it; data and devices are not used.

  Imports JAX, but touches no device.

  Args:
    recipe: the value of --config.
    asked: its settings, as they were given.
    config: the same, with the values that rules decide.

  Raises:
    ConfigError: a setting is wrong, contradicts another, or may end the run before its last step.
  """
  from vit_jax.training import checks

  checks.check(asked, config)
  if config.early_stopping.patience:
    raise cfg.ConfigError(
      f"{recipe} may stop early (config.early_stopping.patience={config.early_stopping.patience}), "
      "but what counts here is the evaluation after the last step; make the patience 0."
    )
