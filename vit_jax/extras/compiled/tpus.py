"""TPUs: the compiler is libtpu. It refuses programs that need too much memory."""

import re

from vit_jax.extras.compiled.platform import Platform, known

# libtpu aborts the process for some malformed names. Its kinds are called v3, v5e, tpu7x and so on.
KIND = r"(?:v|tpu)\d[a-z0-9]*"
TOPOLOGY = re.compile(KIND + r":[1-9]\d*(x[1-9]\d*){1,2}(_twisted|_untwisted)?", re.ASCII)


def described(topology: str) -> dict:
  """The arguments of JAX's `get_topology_desc`."""
  arguments = dict(platform="tpu", topology_name=topology)
  # On v4, JAX treats both cores of a chip as one device, and libtpu must be told so.
  if topology.startswith("v4:"):
    arguments["chip_config_name"] = "megacore"
  return arguments


def refused_bytes(message: str) -> int | None:
  """Bytes of temporaries if a program needs too much memory; None for any other error message."""
  match = re.search(r"temporaries \(([\d.]+)([KMGT])\) exceeds available HBM", message)
  return match and int(float(match[1]) * 2 ** {"K": 10, "M": 20, "G": 30, "T": 40}[match[2]])


PLATFORM = Platform(
  title="TPU",
  examples="v3:16x16 (Cloud's v3-512), v4:4x4x4 (v4-128), v5e:16x16, v6e:16x16",
  names=lambda topology: bool(TOPOLOGY.fullmatch(topology)),
  described=described,
  packages=("libtpu",),
  install="pip install --target=.libtpu libtpu",
  refused=refused_bytes,
  usable=lambda kind: known(kind).hbm_bytes,
)
