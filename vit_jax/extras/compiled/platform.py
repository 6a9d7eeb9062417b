"""The properties of a kind of devices that compiling for it needs."""

import dataclasses
import math
from collections.abc import Callable

from vit_jax.config import RunError
from vit_jax.devices.chips import CHIPS, Chip


@dataclasses.dataclass(frozen=True)
class Platform:
  """A kind of devices, such as TPUs. The defaults are for devices that are at hand.

  Attributes:
    title: for messages.
    examples: names of topologies, for messages.
    names: whether a text has the form of a topology's name.
    described: the arguments of JAX's `get_topology_desc` for a topology.
    packages: they are importable where the compiler is installed.
    install: the command that installs them, into a folder of `absent.FOLDERS`.
    options: for the compiler.
    unlimited: further ones, with which it computes nothing again to save memory.
    refused: the bytes of temporaries that the compiler names when it refuses a program that is too
      large; None for any other message.
    usable: the bytes that a program may take of the memory of a kind of device.
  """

  title: str = ""
  examples: str = ""
  names: Callable[[str], bool] = lambda topology: False
  described: Callable[[str], dict] = lambda topology: {}
  packages: tuple[str, ...] = ()
  install: str = ""
  options: dict[str, bool | int] = dataclasses.field(default_factory=dict)
  unlimited: dict[str, bool | int] = dataclasses.field(default_factory=dict)
  refused: Callable[[str], int | None] = lambda message: None
  usable: Callable[[str], float] = lambda kind: math.inf


def known(device_kind: str) -> Chip:
  """The chip of a kind of device.

  Raises:
    RunError: its memory and rates are not known.
  """
  listed = CHIPS.get(device_kind)
  if listed is None:
    raise RunError(
      f"{device_kind!r} is not known; add its memory and clock to vit_jax/devices/chips.py."
    )
  return listed
