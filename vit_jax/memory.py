"""Host memory of a run that computes on the CPU."""

import ctypes
import platform

# Parameters of glibc's mallopt (malloc.h).
TRIM_THRESHOLD, MMAP_MAX, ARENA_MAX = -1, -4, -8


def keep_freed_memory():
  """Lets glibc keep what is freed, instead of giving it back to the kernel at once.

  XLA allocates and frees the same large buffers every step; given back, each step pays the kernel
  to map and clear them anew, which costs a third of its time (docs/architecture.md). The process
  stays as large as it once was. Without glibc nothing happens.
  """
  if platform.libc_ver()[0] == "glibc":
    mallopt = ctypes.CDLL(None).mallopt
    mallopt(MMAP_MAX, 0)  # large buffers come from the heap
    mallopt(TRIM_THRESHOLD, -1)  # whose free end is never cut off
    mallopt(ARENA_MAX, 1)  # one heap for all threads
