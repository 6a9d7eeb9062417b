"""What `import vit_jax` offers: recipe, train, finetune, evaluate and load."""

import contextlib
import dataclasses
import os
import signal
import threading
from collections.abc import Iterator, Mapping

import jax
import ml_collections

from vit_jax import inference, launch
from vit_jax.config import Config, Size, parsing, plugins, recipe_file, recorded
from vit_jax.devices.hosts import Hosts
from vit_jax.inference import LoadedModel
from vit_jax.process import machine, program, progress
from vit_jax.process.console import StopRequest
from vit_jax.process.errors import ConfigError
from vit_jax.process.progress import NoProgress, Progress
from vit_jax.process.text import with_numbers
from vit_jax.storage.metrics_log import read_lines
from vit_jax.storage.paths import Path, path_of

Settings = Mapping[str, object]


@dataclasses.dataclass(frozen=True)
class Result:
  """What `train` and `finetune` return.

  Attributes:
    workdir: the folder of the run; `vit_jax.load` takes it.
    finished: whether the run reached its end; False: Ctrl-C stopped it, and the same call resumes.
    metrics: the last value of each metric, such as "test/top1", from metrics.jsonl.
  """

  workdir: Path
  finished: bool
  metrics: dict[str, float]

  def curve(self, key: str) -> tuple[list[int], list[float]]:
    """The steps at which a metric, such as "loss", was measured, and its values there."""
    lines = [with_numbers(line) for line in read_lines(self.workdir) if key in line]
    return [line["step"] for line in lines], [line[key] for line in lines]


def recipe(name: os.PathLike | str, settings: Settings | None = None) -> Config:
  """The settings of a recipe.

  Args:
    name: as for `vit-jax train`: NAME or NAME:ARG of this project, the path of a recipe, or images
      to train on, such as a folder with a folder of images for each class.
    settings: values that replace the recipe's, such as {"schedule.learning_rate": 1e-3}; the keys
      are those of --config.KEY on the command line.

  Raises:
    ConfigError: there is no such recipe, or a setting is wrong.
  """
  name = recipe_file.recipe_of(str(name))
  texts = texts_of(settings)
  given = texts.get("plugins", "")
  plugins.load(given)
  config = recipe_file.load(name, texts)
  plugins.check_recipe(config.plugins, given, name)
  return config


def train(config: Config | ml_collections.ConfigDict, workdir: os.PathLike | str) -> Result:
  """Trains to the end, or resumes the run of `workdir`. Ctrl-C stops after a step and saves.

  Args:
    config: the settings, of `recipe`, made by `vit_jax.config.Config`, or of a `get_config`.
    workdir: the folder of the run, on a disk or in a bucket.

  Raises:
    ConfigError: a setting, the data or the weights are wrong, or do not fit the run of `workdir`;
      or a module of config.plugins is not imported.
    RunError: the run cannot go on.
    StorageError: the workdir cannot be read or written.
    KeyboardInterrupt: Ctrl-C before there was anything to save, or a second one.
  """
  config = parsing.checked(config)
  plugins.check(config.plugins)
  imported = plugins.with_imported(config.plugins)
  config = dataclasses.replace(config, plugins=imported)
  stop = Interrupts()
  folder = folder_of(workdir)
  with ready() as shown, stop.listening():
    finished = launch.launch(config, folder, stop, mode="train", hosts=Hosts(), progress=shown)
  metrics = {}
  for line in read_lines(folder):
    metrics |= with_numbers(line)
  return Result(folder, finished, metrics)


def finetune(
  weights: os.PathLike | str,
  data: os.PathLike | str,
  workdir: os.PathLike | str,
  settings: Settings | None = None,
) -> Result:
  """Fine-tunes weights, as `vit-jax finetune WEIGHTS DATA`; resumes as `train` does.

  Args:
    weights: a file or folder of weights, or the workdir of a run.
    data: a folder with a folder of images for each class, or any other source.
    workdir: the folder of the new run.
    settings: as for `recipe`.

  Raises:
    As `recipe` and `train`.
  """
  return train(recipe(f"finetune:{weights},{data}", settings), workdir)


def evaluate(
  source: os.PathLike | str,
  data: os.PathLike | str = "",
  settings: Settings | None = None,
  *,
  workdir: os.PathLike | str = "",
  average: bool = True,
) -> dict[str, float]:
  """Scores a run on its own evaluations, or a run or weights on `data`.

  Args:
    source: the workdir of a run; with `data`, weights too.
    data: images with labels; "": the evaluations of the run.
    settings: as for `recipe`.
    workdir: with `data`, the folder for evaluation.json and the predictions; those of a run itself
      are written to the run.
    average: score the moving average of the parameters, if there is one.

  Returns:
    The metrics, such as {"test/top1": 0.98}.

  Raises:
    As `recipe` and `train`; ConfigError also if only one of data and workdir is given.
  """
  if bool(data) != bool(workdir):
    raise ConfigError(
      f"data={str(data)!r}, workdir={str(workdir)!r}: give both, or neither for the evaluations of "
      "a run, which are written to the run."
    )
  texts = texts_of(settings)
  if data:
    config = recipe(f"evaluate:{source},{data}", settings)
    folder = folder_of(workdir)
  else:
    folder = folder_of(source)
    plugins.load(texts.get("plugins", ""))
    otherwise = "give data and workdir too, to evaluate weights that are no run"
    config = recipe_file.replaced(recorded.read_config(folder, otherwise), texts)
  given = frozenset(recipe_file.in_our_names(texts))
  with ready() as shown:
    return launch.launch_evaluation(config, folder, Hosts(), given, average=average, progress=shown)


def load(
  source: os.PathLike | str, image_size: Size = 0, *, step: int = 0, average: bool = True
) -> LoadedModel:
  """A model that predicts: `vit_jax.inference.load`, which documents the arguments."""
  with ready():
    jax.devices()  # which predictions need: a refusal comes now
    return inference.load(source, image_size, step=step, average=average)


class Interrupts(StopRequest):
  """Ctrl-C in a program of the user's, which goes on afterwards.

  As long as there is nothing to save, Ctrl-C raises KeyboardInterrupt. Later, the loop ends after
  the current step and saves; a second Ctrl-C raises KeyboardInterrupt at once.
  """

  @contextlib.contextmanager
  def listening(self) -> Iterator[None]:
    """Receives Ctrl-C until the end of the context, if this is the main thread."""
    if threading.current_thread() is not threading.main_thread():
      yield
      return
    before = signal.signal(signal.SIGINT, self._interrupt)
    try:
      yield
    finally:
      signal.signal(signal.SIGINT, before)

  def _interrupt(self, *_):
    if self._received or not self._held:
      raise KeyboardInterrupt
    self._received = True
    if self._several:
      os.kill(os.getpid(), signal.SIGTERM)  # JAX's service stops all processes together


@contextlib.contextmanager
def ready() -> Iterator[Progress | NoProgress]:
  """Around work on devices: refuses what the command line refuses, and gives the progress.

  Raises:
    ConfigError: a variable or a setting of JAX would change numbers, or there is no device.
  """
  program.check_libraries()
  program.check_jax()
  with program.said_of_devices(), progress.of_process(progress.is_first(-1)) as shown:
    yield shown


def texts_of(settings: Settings | None) -> dict[str, str]:
  """Settings as the command line has them.

  Raises:
    ConfigError: a value is None, which the command line cannot say.
  """
  texts = {}
  for key, value in (settings or {}).items():
    if value is None:
      raise ConfigError(
        f"config.{key}=None is no value; leave the setting out, or give what its page says for "
        'none, such as "" or 0.'
      )
    texts[key] = str(parsing.plain(value))
  return texts


def folder_of(workdir: os.PathLike | str) -> Path:
  """The path of a workdir.

  Raises:
    ConfigError: no folder can have this name.
  """
  folder = path_of(workdir)
  if refusal := machine.refusal(folder):
    raise ConfigError(refusal)
  return folder
