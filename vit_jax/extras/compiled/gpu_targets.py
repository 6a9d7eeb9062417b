"""GPUs as XLA's compiler wants them described, by the names that --topology takes.

The numbers are those of XLA's own descriptions (openxla/xla, xla/backends/gpu/target_config/specs);
size and rate of the memory are in `vit_jax/devices/chips.py`.
"""

from typing import NamedTuple

from vit_jax.devices.chips import CHIPS


class Target(NamedTuple):
  """The numbers of a GPU that the compiler needs, beside those of `Chip`.

  Attributes:
    kind: JAX's name for it.
    capability: its compute capability.
    cores: streaming multiprocessors.
    fpus: float32 lanes of a core.
    threads: the most on a core.
    shared: bytes of a core's shared memory.
    l2: bytes of the cache that all cores share.
    clock_ghz: the highest.
  """

  kind: str
  capability: tuple[int, int]
  cores: int
  fpus: int
  threads: int
  shared: int
  l2: int
  clock_ghz: float


TARGETS = {
  "a100-40": Target(
    *("NVIDIA A100-SXM4-40GB", (8, 0), 108, 64),
    *(2048, 167_936, 41_943_040, 1.41),
  ),
  "a100-80": Target(
    *("NVIDIA A100-SXM4-80GB", (8, 0), 108, 64),
    *(2048, 167_936, 41_943_040, 1.41),
  ),
  "a6000": Target(
    *("NVIDIA RTX A6000", (8, 6), 84, 128),
    *(1536, 102_400, 6_291_456, 1.8),
  ),
  "h100": Target(
    *("NVIDIA H100 80GB HBM3", (9, 0), 132, 128),
    *(2048, 233_472, 52_428_800, 1.98),
  ),
  "h100-pcie": Target(
    *("NVIDIA H100 PCIe", (9, 0), 114, 128),
    *(2048, 233_472, 52_428_800, 1.755),
  ),
  "h200": Target(
    *("NVIDIA H200", (9, 0), 132, 128),
    *(2048, 233_472, 52_428_800, 1.98),
  ),
  "b200": Target(
    *("NVIDIA B200", (10, 0), 148, 128),
    *(2048, 233_472, 132_644_864, 1.965),
  ),
  "rtx6000pro": Target(
    *("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", (12, 0), 188, 128),
    *(1536, 131_072, 134_217_728, 2.6),
  ),
}
RESERVED = 1024  # bytes of a core's shared memory that no block may have
TEXT = """gpu_device_info {{
  cuda_compute_capability {{ major: {major} minor: {minor} }}
  threads_per_block_limit: 1024
  threads_per_warp: 32
  threads_per_core_limit: {target.threads}
  core_count: {target.cores}
  fpus_per_core: {target.fpus}
  shared_memory_per_block: 49152
  shared_memory_per_block_optin: {optin}
  shared_memory_per_core: {target.shared}
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: {bandwidth:.0f}
  device_memory_size: {memory}
  l2_cache_size: {target.l2}
  clock_rate_ghz: {target.clock_ghz}
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 }}
runtime_version {{ major: 13 minor: 0 }}
device_description_str: "{target.kind}"
"""


def description(name: str) -> str:
  """The text of a GPU's target configuration; `name` is one of TARGETS."""
  target = TARGETS[name]
  memory = CHIPS.get(target.kind)
  major, minor = target.capability
  # Whole blocks of 1 KiB; of 128 KiB, a block may have 99.
  optin = target.shared - RESERVED
  if target.threads == 1536:
    optin = min(optin, 101_376)
  return TEXT.format(
    target=target,
    major=major,
    minor=minor,
    optin=optin,
    bandwidth=memory.hbm_bandwidth,
    memory=memory.hbm_bytes,
  )
