"""Trains or evaluates: python -m vit_jax.main --config=configs/NAME.py[:ARG] [--workdir=DIR].

--mode=evaluate --workdir=DIR alone evaluates a run with the run's own settings.
The command line can replace every setting of vit_jax/config: --config.batch_size=512
--config.schedule.learning_rate=1e-3. One that is auto follows from others, from data, weights or
devices (docs/settings.md). A run that is started again with the same workdir resumes.

Exit status: 0 done; 2 wrong usage or config; 75 stopped by a signal, with its state saved or
nothing to save yet: start it again; 76 a device computed wrongly (config.verify_every); 130
interrupted by a second Ctrl-C, or by the first one before there was anything to save; 1 anything
else.
"""

from vit_jax.process import console, machine, program, progress

_STOP = console.StopRequest()
if __name__ == "__main__":  # before the imports below, which are slow
  machine.ask_for_huge_pages()
  console.set_up()
  _STOP.listen()

import contextlib
import os
import pathlib
import sys
import time
from typing import NoReturn

from absl import app, flags

from vit_jax.config import ConfigError, RunError, StorageError, command_line, default_workdir
from vit_jax.config.as_recipe import as_recipe
from vit_jax.process.errors import Miscomputed
from vit_jax.process.text import one_line, quoted
from vit_jax.storage import files
from vit_jax.storage.paths import Path, is_url, local_path, path_of
from vit_jax.storage.workdir import CHECKPOINTS

flags.adopt_module_key_flags(command_line)  # --help shows them
_WORKDIR = flags.DEFINE_string(
  "workdir",
  None,
  "Folder of the run; the default is workdirs/NAME, or workdirs/NAME-ARG, with a sum behind it if "
  "ARG has a slash or the recipe is not in configs.",
)
_MODE = flags.DEFINE_enum("mode", "train", ["train", "evaluate"], "What to do.")
_WRITE_RECIPE = flags.DEFINE_string(
  "write_recipe", "", "Write the settings to this Python file, as a recipe, and do nothing else."
)
_RAW_PARAMS = flags.DEFINE_boolean(
  "raw-params",
  False,
  "With --mode=evaluate: score the parameters themselves, not their moving average.",
)
_COORDINATOR = flags.DEFINE_string(
  "coordinator", "", "HOST:PORT of process 0; not needed on Cloud TPU and SLURM."
)
_PROCESSES = flags.DEFINE_integer("processes", 0, "With --coordinator: number of processes.")
_PROCESS = flags.DEFINE_integer("process", -1, "With --coordinator: this process's number, from 0.")


def folder_of(recipe: str) -> Path:
  """The folder of the run: --workdir, or else the recipe's own.

  Raises:
    ConfigError, CannotReadError: as `default_folder`; or no folder can have this name.
  """
  if not _WORKDIR.value:
    folder = default_workdir.default_folder(recipe)
    usual = default_workdir.default(recipe)
    if folder != usual:
      words = f"Goes on in {folder}, where version 0.2.0 began this run (today: {usual})."
      print(words, flush=True)
  else:
    folder = path_of(_WORKDIR.value)
  if refusal := machine.refusal(folder):
    raise ConfigError(refusal)
  return folder


def refuse(refusal: Exception) -> NoReturn:
  """Prints why this process does not start, tells the others of a run, if any, and exits."""
  names = ("coordinator", "processes", "process")
  coordinator, processes, process = (command_line.value_of(name, sys.argv) for name in names)
  if not (coordinator or machine.under_slurm() or machine.on_tpu()):
    command_line.refuse(refusal)
  console.complain(str(refusal))  # at once: the others may not come
  from vit_jax.devices.hosts import Hosts
  from vit_jax.training import fingerprint

  with contextlib.suppress(ValueError):  # not numbers
    hosts = Hosts(coordinator or "", int(processes or 0), int(process or -1))
    fingerprint.tell_refusal(hosts, str(refusal), unheard=lambda: os._exit(console.WRONG_USAGE))
  sys.exit(console.WRONG_USAGE)


def check_init_from(init_from: str, folder: Path):
  """Checks that the weights of a new run on this machine exist, before slow imports.

  A run with checkpoints goes on without them.

  Raises:
    ConfigError: they do not.
  """
  if not init_from or is_url(folder) or files.exists(folder / CHECKPOINTS):
    return
  try:
    files.check_weights(init_from)
  except ConfigError as error:
    raise ConfigError(f"config.init_from={init_from}: {error}") from error


def write_recipe(path: pathlib.Path, command: command_line.CommandLine):
  """Writes the settings of a command line as a recipe.

  Raises:
    ConfigError: the file exists, or cannot be written.
  """
  from vit_jax.config.resolve import resolve
  from vit_jax.training.planning import before_devices

  facts = before_devices(command.config)
  text = as_recipe(resolve(command.config, facts), facts, f"Made from {command.recipe}.")
  try:
    new = path.suffix == ".py" and files.create(path, text)
  except OSError as error:
    raise ConfigError(f"--write_recipe={path} cannot be written: {error}.") from error
  if not new:
    raise ConfigError(f"--write_recipe={path} must be a new file whose name ends in .py.")
  flags = [quoted(f"--config={path}")]
  if command.config.plugins:
    flags.append(quoted(f"--config.plugins={command.config.plugins}"))
  print(one_line(f"Recipe: {path} (train with: {program.own_command()} train {' '.join(flags)})"))


def main(command: command_line.CommandLine):
  """Runs the chosen mode; the heavy imports come after the command line has been accepted."""
  began = time.monotonic()
  try:
    if _WRITE_RECIPE.value:
      write_recipe(local_path(_WRITE_RECIPE.value), command)
      return
    try:
      folder = folder_of(command.recipe)
      check_init_from(command.config.init_from, folder)
    except ConfigError as error:
      refuse(error)
    shown = progress.of_process(progress.is_first(_PROCESS.value))
    with program.said_of_devices(), shown:
      shown.doing("loading libraries")
      program.check_libraries()
      from vit_jax import launch
      from vit_jax.devices.hosts import Hosts

      hosts = Hosts(_COORDINATOR.value, _PROCESSES.value, _PROCESS.value)
      finished = launch.launch(
        command.config,
        folder,
        _STOP,
        mode=_MODE.value,
        hosts=hosts,
        began=began,
        given=command.given,
        average=not _RAW_PARAMS.value,
        progress=shown,
      )
  except ConfigError as error:
    console.leave(str(error), console.WRONG_USAGE)
  except StorageError as error:
    # The threads of a failed save may hang, or print tracebacks.
    console.leave_at_once(str(error), console.FAILED)
  except Miscomputed as error:
    console.leave(str(error), console.MISCOMPUTED)
  except RunError as error:
    console.leave(str(error), console.FAILED)
  except (MemoryError, RuntimeError) as error:
    reason = machine.exhausted(error)
    if not reason:
      raise
    console.leave_at_once(reason, console.FAILED)  # other threads may hang
  if not finished:
    sys.exit(console.STOPPED)
  sys.exit(console.DONE)


def parse(argv: list[str]) -> command_line.CommandLine:
  """Parses the command line; before that, undoes how absl's `app.run` shows the log."""
  console.show_warnings()
  return command_line.parse(argv, refuse)


def run():
  """The console entry point."""
  console.set_up()
  _STOP.listen()
  app.run(main, flags_parser=parse)


if __name__ == "__main__":
  run()
