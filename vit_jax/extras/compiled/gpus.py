"""NVIDIA's GPUs: the compiler is XLA's, and cuDNN's for its attention. It refuses no program."""

import importlib.metadata
import os
import re

from vit_jax.extras.compiled import gpu_targets
from vit_jax.extras.compiled.platform import Platform, known

TOPOLOGY = re.compile(r"([a-z0-9-]+):(?:([1-9]\d*)x)?([1-9]\d*)", re.ASCII)
# JAX's variables for the share of the memory that it takes, the newer one first, and its default.
FRACTIONS = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION")
FRACTION = 0.75
JAX = importlib.metadata.version("jax")  # importing it takes longer than --help may


def names(topology: str) -> bool:
  """Whether a name is that of GPUs: KIND:GPUS or KIND:HOSTSxGPUS."""
  match = TOPOLOGY.fullmatch(topology)
  return match is not None and match[1] in gpu_targets.TARGETS


def described(topology: str) -> dict:
  """The arguments of JAX's `get_topology_desc`."""
  kind, hosts, gpus = TOPOLOGY.fullmatch(topology).groups()
  return dict(
    platform="cuda",
    topology_name=topology,
    target_config=gpu_targets.description(kind),
    topology=f"1x{hosts or 1}x{gpus}",
  )


def usable_bytes(kind: str) -> float:
  """The bytes that JAX takes of a GPU's memory, by the variables of this process."""
  told = next((os.environ[name] for name in FRACTIONS if os.environ.get(name)), FRACTION)
  return float(told) * known(kind).hbm_bytes


PLATFORM = Platform(
  title="GPU",
  examples=f"h100:8, h100:2x8 (two machines); known GPUs: {', '.join(gpu_targets.TARGETS)}",
  names=names,
  described=described,
  packages=("jax_cuda13_plugin", "nvidia.cudnn", "nvidia.cu13"),
  install=(
    f"pip install --target=.libgpu --no-deps jax-cuda13-pjrt=={JAX} "
    f"jax-cuda13-plugin=={JAX} nvidia-cudnn-cu13 nvidia-cuda-nvcc nvidia-nvvm"
  ),
  # Nothing can be measured without a GPU, and matmuls of many rows have no Triton kernel then.
  # The machine code, which nobody runs, is not optimized; memory and kernels are the same.
  options={
    "xla_gpu_enable_triton_gemm": False,
    "xla_gpu_autotune_level": 0,
    "xla_backend_optimization_level": 0,
  },
  unlimited={"xla_gpu_memory_limit_slop_factor": 10_000},  # percent of the memory
  usable=usable_bytes,
)
