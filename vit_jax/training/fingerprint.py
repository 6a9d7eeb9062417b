"""Everything that decides the numbers of a run: settings, program, data.

A resumed run compares it with the steps so far. Processes compare it when `connect` connects them.
"""

import contextlib
import hashlib
import json
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence

import jax
import numpy as np

from vit_jax.config import Config, ConfigError, RunError, plugins, to_dict
from vit_jax.config.fields import of_added
from vit_jax.config.parsing import flat
from vit_jax.data.identity import Identity
from vit_jax.devices import hosts as joining
from vit_jax.devices.hosts import UNKNOWN, Hosts
from vit_jax.process import console, program
from vit_jax.storage import files
from vit_jax.storage.tree import flatten

TELLING = 30  # seconds in which the other processes must be there
CACHE = pathlib.Path("~/.cache/vit_jax/compiled")


def connect(config: Config, hosts: Hosts, facts: Callable[[], Mapping[str, str]]):
  """Connects the processes of this command, and compares them before they compute together.

  `facts` returns what all of them must have in common; a single process does not call it.

  Raises:
    ConfigError: they are not alike, or a process does not start.
    RunError: the others cannot be reached.
  """
  joining.connect(hosts)
  if jax.distributed.is_initialized():
    with joining.told("start", seconds=config.stall_seconds):
      common = facts()
    joining.compare_processes("start", common, seconds=config.stall_seconds)
    joining.compare_processes("devices", of_devices(), seconds=config.stall_seconds)
  keep_compiled_programs()


@contextlib.contextmanager
def refusal_told(hosts: Hosts) -> Iterator[None]:
  """Reports an error inside, before this process has connected, to the others if they answer."""
  try:
    yield
  except (ConfigError, RunError) as error:
    words = str(error)
    status = console.WRONG_USAGE if isinstance(error, ConfigError) else console.FAILED
    tell_refusal(hosts, words, unheard=lambda: console.leave_at_once(words, status))
    raise


def tell_refusal(hosts: Hosts, refusal: str, *, unheard: Callable[[], None]):
  """Tells the other processes why this one does not start, if they join within `TELLING` seconds.

  Args:
    hosts: how this process finds them.
    refusal: why.
    unheard: called if they are not, before JAX aborts this process; it may end the process.
  """
  with contextlib.suppress(ConfigError, RunError):
    joining.connect(hosts, seconds=TELLING, aborted=unheard)
    joining.compare_processes("start", {}, seconds=TELLING, refusal=refusal)


def keep_compiled_programs():
  """Keeps compiled programs on disk, so that the next start is quick.

  They are not in the workdir: JAX runs the programs that it finds, and a workdir may come from a
  stranger.
  """
  if jax.config.jax_compilation_cache_dir:  # by the user's variable, or program
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


# Settings that may differ between hosts: local paths, whose content is compared instead, and those
# that only affect speed.
OWN = (
  "source",
  "exclude",
  "init_from",
  "teacher",
  "class_names",
  "threads",
  "bucket_cache",
  "ahead",
  *of_added("data", "of_host"),
)


def of_start(config: Config, newest: str, data: Mapping[str, Identity]) -> dict[str, str]:
  """The facts, by name, that all processes must have in common before they touch a device.

  Args:
    config: the settings, as the run has them.
    newest: the newest checkpoint, as far as they must see the same one.
    data: the identities of the opened datasets.
  """
  facts = of_settings(config)
  facts["the newest checkpoint"] = newest
  for key, identity in data.items():
    known = {field: str(value) or UNKNOWN for field, value in identity._asdict().items()}
    facts |= {f"{key} ({field})": value for field, value in known.items()}
  return facts | program.fingerprint(plugins.names_in(config.plugins))


def of_settings(config: Config) -> dict[str, str]:
  """All settings that hosts have in common as text, by their full names."""
  return {
    key: json.dumps(value)
    for key, value in flat(to_dict(config), "config.").items()
    if key.rpartition(".")[2] not in (*OWN, "origins", "derived")
  }


def of_devices() -> dict[str, str]:
  """The devices of this process."""
  mine = jax.local_devices()
  return {"the number and kind of devices": f"{len(mine)} x {mine[0].device_kind}"}


def of_weights(params: Mapping) -> dict[str, str]:
  """A checksum of the parameters that a run starts from; `params` is {} if it starts from none."""
  return {"the sum of the weights to start from": digest_of(params)}


def digest_of(params: Mapping) -> str:
  """A checksum of NumPy arrays with their names, in 16 hexadecimal digits."""
  digest = hashlib.sha256()
  for name, array in sorted(flatten(params).items()):
    array = np.ascontiguousarray(array)
    digest.update(f"{name} {array.shape} {array.dtype} ".encode())
    if array.size:
      digest.update(memoryview(array).cast("B"))
  return digest.hexdigest()[:16]


def of_head(names: Sequence[str]) -> dict[str, str]:
  """A checksum of the names of a head's classes, in their order."""
  digest = hashlib.sha256(json.dumps([*names]).encode())
  return {"the sum of the names of the head's classes": digest.hexdigest()[:16]}


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
  """How the program differs from that of the steps so far, as settings do; [] if not known.

  The code of a plugin is compared if both have it; `config.recorded.changes` names lost plugins.
  """
  if not before:
    return []
  lines = []
  for name in sorted(before.keys() | now.keys()):
    if name.startswith(program.OF_PLUGIN) and (name not in before or name not in now):
      continue
    if before.get(name) != now.get(name):
      lines.append(f"{name}: {_shown(before, name)} -> {_shown(now, name)}")
  return lines


def _shown(values: Mapping[str, str], name: str) -> str:
  return repr(values[name]) if name in values else "not set"
