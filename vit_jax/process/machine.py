"""What this machine gives a process: memory, huge pages, threads, the length of names.

Linux ends a process with SIGKILL if a control group of it needs more memory than it may have
(cgroups(7)).
"""

import contextlib
import importlib.util
import os
import pathlib
import resource
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping

LONGEST_PART = 255  # bytes of a name, the limit of file systems
# Bytes of a workdir's path, on a disk and in a bucket; less than allowed, so that its files fit.
LONGEST_PATH = 3_800
LONGEST_KEY = 800
_MEMORY = "memory, ulimit -v"  # bytes; the shell shows units of 1,024
_LIMITS = {_MEMORY: resource.RLIMIT_AS, "processes, ulimit -u": resource.RLIMIT_NPROC}


def refusal(folder: pathlib.Path) -> str:
  """One sentence on why `folder` cannot hold a run; "" if it can."""
  return _of_length(folder) or _of_names(folder) or _of_threads()


def _of_length(folder):
  longest = max((len(os.fsencode(name)) for name in folder.parts), default=0)
  most = LONGEST_PATH if isinstance(folder, pathlib.Path) else LONGEST_KEY
  if longest <= LONGEST_PART and len(os.fsencode(str(folder))) <= most:
    return ""
  return (
    f"--workdir={str(folder)[:60]}... is too long: each name in it may have {LONGEST_PART} bytes, "
    f"and all of it {most:,}; give a shorter one."
  )


def _of_names(folder):
  encoding = sys.getfilesystemencoding()
  if encoding == "utf-8" or str(folder).isascii():
    return ""
  return (
    f"--workdir={folder} has letters that this locale ({encoding}) cannot write; set "
    "LC_ALL=C.UTF-8, or give a folder without them."
  )


def needed_threads() -> int:
  """About as many threads as JAX, TensorStore and the reading of images start on this machine."""
  return 48 + 2 * (os.cpu_count() or 1)


def _of_threads():
  """Starts the needed threads for a moment, because a library that cannot start one aborts."""
  needed = needed_threads()
  enough = threading.Event()
  started = []
  try:
    for _ in range(needed):
      thread = threading.Thread(target=enough.wait, daemon=True)
      thread.start()
      started.append(thread)
  except (RuntimeError, MemoryError):
    return (
      f"This process may start only {len(started)} threads, and a run needs about {needed}; raise "
      "the limit of processes (ulimit -u, or pids of the container) or of memory (ulimit -v)."
    )
  finally:
    enough.set()
    for thread in started:
      thread.join()
  return ""


def exhausted(error: BaseException) -> str:
  """One sentence on the limit that an error is about; "" if it is about none."""
  reason = reached(error)
  return reason and (
    f"{reason}; "
    "raise the limit, or use a machine or container with more, and start the same command again."
  )


def reached(error: BaseException) -> str:
  """The limit that an error is about, without a full stop; "" if it is about none."""
  if not isinstance(error, MemoryError) and "can't start new thread" not in str(error):
    return ""
  known = "; ".join(_set(_LIMITS)) or "no limit of its own"
  return f"This process gets no more memory or threads ({known})"


def of_memory() -> str:
  """A sentence on the limit of this process's memory, with a space after it; "" if it has none."""
  known = "; ".join(_set([_MEMORY]))
  return known and f"This process has a limit ({known}); raise it first. "


def _set(names: Iterable[str]) -> list[str]:
  """The limits that are set, with their values."""
  soft = {name: resource.getrlimit(_LIMITS[name])[0] for name in names}
  return [f"{name}: {n:,}" for name, n in soft.items() if n != resource.RLIM_INFINITY]


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


TPU_DEVICES = ("/dev/accel0", "/dev/vfio/0")


def on_tpu() -> bool:
  """Whether this is a Cloud TPU VM with libtpu."""
  return importlib.util.find_spec("libtpu") is not None and any(
    pathlib.Path(device).exists() for device in TPU_DEVICES
  )


def under_slurm() -> bool:
  """Whether this process is one of several tasks that srun started.

  SLURM gives a batch script the number of tasks and an index too. Only a step that srun started has
  SLURM_STEP_NUM_TASKS above 1.
  """
  tasks = os.environ.get("SLURM_STEP_NUM_TASKS", "1")
  return tasks.isdecimal() and int(tasks) > 1


ROOT = pathlib.Path("/")
# By the controllers in a line of /proc/self/cgroup ("" for version 2): the folder of the groups,
# the file with the limit, the file with the bytes in use, and the line of memory.stat that counts
# the bytes of cached files, which Linux frees when it must.
_KINDS = {
  "": ("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
  "memory": (
    "sys/fs/cgroup/memory",
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    "total_inactive_file",
  ),
}


def most_memory(root: pathlib.Path = ROOT) -> int:
  """Bytes that all processes of this machine or container may have together.

  `root` is the folder / of the machine.
  """
  whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
  return min([whole, *(limit for limit, _ in _memory_limits(root))])


def free_memory(root: pathlib.Path = ROOT) -> int:
  """Bytes that a process may still take; cached files that Linux can drop count as free."""
  left = [limit - used for limit, used in _memory_limits(root)]
  return max(min([_available(root), *left]), 0)


def _available(root) -> int:
  with contextlib.suppress(OSError, KeyError, ValueError):
    return _counts(root / "proc/meminfo")["MemAvailable:"] * 1024
  return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _memory_limits(root) -> Iterator[tuple[int, int]]:
  """The limit and the bytes in use of each control group of this process that has a limit."""
  with contextlib.suppress(OSError):  # not Linux
    for line in (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines():
      _, controllers, path = line.split(":", 2)
      for kind in _KINDS.keys() & controllers.split(","):
        yield from _of_groups(root, path, *_KINDS[kind])


def _of_groups(root, path, top, limit, used, cached) -> Iterator[tuple[int, int]]:
  """As `_memory_limits`, for a group and the groups around it.

  In a container, the path may be the one outside it: its own group is then the top one.
  """
  top = root / top
  inner = top / path.strip("/")
  for group in [inner, *inner.parents]:
    if group.is_relative_to(top):
      with contextlib.suppress(OSError, KeyError, ValueError):  # it is not there, or has no limit
        kept = _counts(group / "memory.stat")[cached]
        yield _number(group / limit), _number(group / used) - kept


def _counts(path: pathlib.Path) -> dict[str, int]:
  """The first number of each line, by the word before it."""
  rows = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
  return {row[0]: int(row[1]) for row in rows if len(row) > 1}


def _number(path: pathlib.Path) -> int:
  return int(path.read_text(encoding="utf-8"))


def lacks_memory(error: Exception) -> bool:
  """Whether an error says that memory is too small, also as the matmul library on CPUs says it."""
  words = f"{type(error).__name__}: {error}"
  lacking = out_of_memory(words) or "YNNPACK operation failed" in words
  return lacking or isinstance(error, MemoryError)


def out_of_memory(error: str) -> bool:
  """Whether an error says that the memory of a device is too small."""
  return "RESOURCE_EXHAUSTED" in error or "out of memory" in error.lower()
