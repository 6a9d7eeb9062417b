"""The memory of a container is its limit, and not the machine's memory."""

import os

import pytest

from vit_jax.process import machine as machines

MACHINE = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
MIB = 2**20


def machine(root, line, groups):
  """Files of /proc and /sys in a folder; `groups` maps files below /sys/fs/cgroup to contents."""
  files = {"proc/self/cgroup": line, "proc/meminfo": f"MemTotal: 9 kB\nMemAvailable: {2**22} kB\n"}
  files |= {f"sys/fs/cgroup/{path}": text for path, text in groups.items()}
  for path, text in files.items():
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(f"{text}\n")
  return root


def group(limit, used=0, cached=0):
  return {
    "memory.max": limit,
    "memory.current": used * MIB,
    "memory.stat": f"anon 1\ninactive_file {cached * MIB}",
  }


def below(folder, files):
  return {f"{folder}/{name}".lstrip("/"): text for name, text in files.items()}


NONE = group("max")
FIRST = {
  "memory.limit_in_bytes": 60 * MIB,
  "memory.usage_in_bytes": 40 * MIB,
  "memory.stat": f"total_inactive_file {10 * MIB}",
}
HUGE = FIRST | {"memory.limit_in_bytes": 2**63 - 4096}
CASES = {
  "no groups": ("5:pids:/x", {}, MACHINE, 4096),
  "no limit": ("0::/", NONE, MACHINE, 4096),
  "its own group": ("0::/a/b", below("a/b", group(50 * MIB, 20, 5)), 50 * MIB, 35),
  "a group around it": (
    "0::/a/b",
    below("a", group(50 * MIB, 45)) | below("a/b", group(80 * MIB, 20)),
    50 * MIB,
    5,
  ),
  "a container's own": ("0::/docker/outside", group(50 * MIB, 20), 50 * MIB, 30),
  "used up": ("0::/", group(50 * MIB, 51), 50 * MIB, 0),
  "version 1": ("4:memory:/a\n0::/", below("memory/a", FIRST), 60 * MIB, 30),
  "version 1 of a container": ("4:hugetlb,memory:/docker/x", below("memory", FIRST), 60 * MIB, 30),
  "version 1 without a limit": ("4:memory:/", below("memory", HUGE), MACHINE, 4096),
}


@pytest.mark.parametrize("case", CASES)
def test_the_least_limit_counts(tmp_path, case):
  line, groups, most, free = CASES[case]
  root = machine(tmp_path, line, groups)
  assert machines.most_memory(root) == most
  assert machines.free_memory(root) == free * MIB


def test_without_any_of_these_files_it_is_the_machine(tmp_path):
  assert machines.most_memory(tmp_path) == MACHINE
  assert 0 < machines.free_memory(tmp_path) <= MACHINE
