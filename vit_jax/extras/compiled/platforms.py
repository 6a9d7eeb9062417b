"""The kinds of devices that programs are compiled for without having any, each in a file."""

import importlib
import importlib.util

from jax.experimental import topologies

from vit_jax.config import ConfigError, RunError
from vit_jax.extras.compiled.platform import Platform

# By JAX's names of the platforms.
FILES = {"tpu": "vit_jax.extras.compiled.tpus", "gpu": "vit_jax.extras.compiled.gpus"}


def of(platform: str) -> Platform:
  """The platform with this name; the defaults for devices that are at hand, such as "cpu"."""
  if platform not in FILES:
    return Platform()
  return importlib.import_module(FILES[platform]).PLATFORM


def devices_of(topology: str):
  """The devices of a topology, such as "v3:16x16" or "h100:8".

  Raises:
    ConfigError: there is no topology with this name.
    RunError: the compiler is not installed.
  """
  known = [of(name) for name in FILES]
  examples = f"examples: {', '.join(one.examples for one in known)}."
  platform = next((one for one in known if one.names(topology)), None)
  if platform is None:
    raise ConfigError(
      "A topology is named KIND:AxB or KIND:AxBxC chips of TPUs, KIND:GPUS or KIND:HOSTSxGPUS, not "
      f"{topology!r}; {examples}"
    )
  if not all(map(_importable, platform.packages)):
    raise RunError(
      f"The {platform.title} compiler is not installed; install it: {platform.install} (in the "
      "repository's root)."
    )
  try:
    return topologies.get_topology_desc(**platform.described(topology)).devices
  except Exception as error:  # the library may raise anything
    reason = str(error).partition("\n")[0]
    raise ConfigError(
      f"The {platform.title} compiler knows no topology {topology!r} ({reason}); {examples}"
    ) from error


def _importable(package: str) -> bool:
  """Whether a package is installed."""
  try:
    return importlib.util.find_spec(package) is not None
  except ModuleNotFoundError:  # nor is the one that it is a part of
    return False
