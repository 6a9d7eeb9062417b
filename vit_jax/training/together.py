"""Connects the processes of a run, and sees to it that they run the same."""

import contextlib
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping

import jax

from vit_jax.config import Config, ConfigError, RunError
from vit_jax.devices import comparison
from vit_jax.devices import hosts as joining
from vit_jax.devices.hosts import Hosts
from vit_jax.storage import files
from vit_jax.training import fingerprint

TELLING = 30  # seconds in which the other processes must be there
CACHE = pathlib.Path("~/.cache/vit_jax/compiled")


def connect(config: Config, hosts: Hosts, facts: Callable[[], Mapping[str, str]]):
  """Connects the processes of this command, and compares them before they compute together.

  `facts` gives what all of them must have in common; one process alone does not ask for it.

  Raises:
    ConfigError: they are not alike, or a process does not start.
    RunError: the others cannot be reached.
  """
  joining.connect(hosts, stall_seconds=config.stall_seconds)
  if jax.distributed.is_initialized():
    with comparison.told("start", seconds=config.stall_seconds):
      common = facts()
    comparison.compare("start", common, seconds=config.stall_seconds)
    comparison.compare("devices", fingerprint.of_devices(), seconds=config.stall_seconds)
  keep_compiled_programs()


@contextlib.contextmanager
def refusal_told(config: Config, hosts: Hosts) -> Iterator[None]:
  """If this process is refused before it is connected, tells the others why, if they are there."""
  try:
    yield
  except (ConfigError, RunError) as error:
    with contextlib.suppress(ConfigError, RunError):
      joining.connect(hosts, stall_seconds=config.stall_seconds, seconds=TELLING)
      comparison.compare("start", {}, seconds=TELLING, refusal=str(error))
    raise


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
