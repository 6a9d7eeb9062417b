"""Identifies this program: its code, the versions of its libraries, and the variables they read."""

import functools
import hashlib
import importlib.metadata
import os
import pathlib
import platform
import subprocess
import sys
from collections.abc import Iterable

PACKAGES = (
  *("vit_jax", "jax", "jaxlib", "flax", "optax", "tensorstore", "grain", "numpy"),
  *("opencv-python-headless", "pillow", "libtpu", "jax-cuda12-plugin", "jax-cuda13-plugin"),
)
PREFIXES = ("JAX_", "XLA_", "LIBTPU_INIT_ARGS", "TPU_", "NVIDIA_TF32", "CUBLAS_", "CUDNN_", "NCCL_")
# Variables that differ between machines or processes: file locations, logging, devices.
LOCAL = (
  *("JAX_COMPILATION_CACHE", "JAX_PERSISTENT_CACHE", "JAX_LOG", "JAX_DEBUG_LOG", "JAX_DUMP"),
  *("JAX_TRACEBACK", "JAX_COORDINATOR", "JAX_LOCAL_DEVICE_IDS", "JAX_CUDA_VISIBLE_DEVICES"),
  *("JAX_PARTITION_INDEX", "JAX_SLICE_INDEX"),
  *("JAX_ROCM_VISIBLE_DEVICES", "TPU_", "NCCL_", "JAX_CROSS_HOST_TRANSFER_SOCKET_ADDRESS"),
)
LOCAL_FLAGS = ("--xla_dump", "--xla_force_host_platform_device_count")
GIT_SECONDS = 5


def versions() -> dict[str, str]:
  """The version of Python and of each package that is installed."""
  installed = {"python": platform.python_version()}
  for name in PACKAGES:
    try:
      installed[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
      continue
  return installed


def variables() -> dict[str, str]:
  """The environment variables that are set and that JAX, XLA or the libraries of devices read."""
  return {key: value for key, value in sorted(os.environ.items()) if key.startswith(PREFIXES)}


def deciding(given: dict[str, str]) -> dict[str, str]:
  """The `variables` that can change numbers; the flags of XLA are sorted."""
  shared = {key: value for key, value in given.items() if not key.startswith(LOCAL)}
  for key in ("XLA_FLAGS", "LIBTPU_INIT_ARGS"):
    flags = [flag for flag in shared.get(key, "").split() if not flag.startswith(LOCAL_FLAGS)]
    shared[key] = " ".join(sorted(flags))
  return {key: value for key, value in shared.items() if value}


def fingerprint(plugins: Iterable[str] = ()) -> dict[str, str]:
  """Everything that decides the numbers that this program computes, except settings and data.

  Args:
    plugins: the names of imported modules that belong to the program.
  """
  own = {f"the code of {name}": of_module(name) for name in plugins}
  return {"the code": code()} | own | versions() | deciding(variables())


def of_module(name: str) -> str:
  """A checksum of the sources of an imported module, or of a package; "" if it has no file."""
  file = getattr(sys.modules[name], "__file__", None)
  if not file:
    return ""
  file = pathlib.Path(file)
  if file.stem == "__init__":
    return of_sources(file.parent, file.parent.rglob("*.py"))
  return of_sources(file.parent, [file])


@functools.cache
def code() -> str:
  """A checksum of this package's sources."""
  folder = pathlib.Path(__file__).resolve().parents[1]
  return of_sources(folder, folder.rglob("*.py"))


def of_sources(folder: pathlib.Path, files: Iterable[pathlib.Path]) -> str:
  """A checksum of files: their contents, and their names below a folder."""
  digest = hashlib.sha256()
  for path in sorted(files):
    digest.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes() + b"\0")
  return digest.hexdigest()[:16]


def revision() -> str:
  """The git revision of this code, followed by "-dirty" if files were changed; "" if not known."""
  file = pathlib.Path(__file__).resolve()
  git = ["git", "-C", str(file.parent)]
  # An installed copy may lie inside the repository of another project, which does not track it.
  if not output([*git, "ls-files", "--", file.name]):
    return ""
  return output([*git, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"])


def output(command: list[str]) -> str:
  """The output of a command; "" if it fails or is not installed."""
  try:
    done = subprocess.run(command, capture_output=True, text=True, timeout=GIT_SECONDS)
  except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
    return ""
  if done.returncode != 0:
    return ""
  return done.stdout.strip()
