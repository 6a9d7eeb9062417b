"""The memory that this process may use: the machine's, or less where a container limits it.

Linux ends a process with SIGKILL if a control group of it needs more than it may have (cgroups(7)).
"""

import contextlib
import os
import pathlib
from collections.abc import Iterator

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


def most(root: pathlib.Path = ROOT) -> int:
  """Bytes that all processes of this machine or container may have together.

  `root` is the folder / of the machine.
  """
  whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
  return min([whole, *(limit for limit, _ in _limits(root))])


def free(root: pathlib.Path = ROOT) -> int:
  """Bytes that a process may still take; cached files that Linux can drop count as free."""
  left = [limit - used for limit, used in _limits(root)]
  return max(min([_available(root), *left]), 0)


def _available(root) -> int:
  with contextlib.suppress(OSError, KeyError, ValueError):
    return _counts(root / "proc/meminfo")["MemAvailable:"] * 1024
  return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _limits(root) -> Iterator[tuple[int, int]]:
  """The limit and the bytes in use of each control group of this process that has a limit."""
  with contextlib.suppress(OSError):  # not Linux
    for line in (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines():
      _, controllers, path = line.split(":", 2)
      for kind in _KINDS.keys() & controllers.split(","):
        yield from _of_groups(root, path, *_KINDS[kind])


def _of_groups(root, path, top, limit, used, cached) -> Iterator[tuple[int, int]]:
  """As `_limits`, for a group and the groups around it.

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
