"""Huge pages for the memory of a process that computes on the CPU."""

import os
import pathlib
import sys
from collections.abc import Mapping

VARIABLE = "GLIBC_TUNABLES"
VALUE = "glibc.malloc.hugetlb=1"

# Device files of accelerators: TPUs, NVIDIA's GPUs (dxg: under Windows), AMD's GPUs.
DEVICES = ("accel*", "vfio/[0-9]*", "nvidia[0-9]*", "dxg", "kfd")


def ask_for_huge_pages(devices: pathlib.Path = pathlib.Path("/dev")):
  """Restarts this process with glibc set to ask the kernel for huge pages.

  XLA on the CPU allocates and frees the same large buffers every step. The kernel maps and clears
  each buffer anew, page by page. With pages of 2 MiB instead of 4 KiB, a step takes about two
  thirds of the time (docs/decisions/huge-pages.md). glibc reads the setting only when a process
  starts. Other C libraries ignore it.

  Nothing happens if there is an accelerator, or if the user has set GLIBC_TUNABLES.
  """
  if VARIABLE not in os.environ and computes_on_cpu(os.environ, devices):
    os.environ[VARIABLE] = VALUE
    try:
      os.execv(sys.executable, sys.orig_argv)
    except OSError as error:
      print(f"No huge pages, so steps on the CPU are slower: {error}.", file=sys.stderr)
      os.environ[VARIABLE] = ""


def computes_on_cpu(environment: Mapping[str, str], devices: pathlib.Path) -> bool:
  """Whether JAX will use the CPU, as far as this can be known without importing JAX.

  Args:
    environment: environment variables; JAX_PLATFORMS, if set, decides.
    devices: /dev, which is otherwise searched for device files of accelerators.
  """
  platforms = environment.get("JAX_PLATFORMS")
  if platforms:
    return platforms.split(",")[0] == "cpu"
  return not any(next(devices.glob(pattern), None) for pattern in DEVICES)


def in_words() -> str:
  """A line for the log of a run with huge pages; empty for any other run."""
  if os.environ.get(VARIABLE) != VALUE:
    return ""
  return (
    f"Memory in huge pages, for speed on the CPU: {VARIABLE}={VALUE}. To turn this off, set "
    f"{VARIABLE} yourself, for example to an empty string."
  )
