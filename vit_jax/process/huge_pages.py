"""Host memory of a run that computes on the CPU."""

import os
import sys

TUNABLE = "glibc.malloc.hugetlb"


def ask_for_huge_pages():
  """Starts this process again with glibc told to ask the kernel for huge pages.

  XLA on the CPU allocates and frees the same large buffers every step. The kernel maps and clears
  each anew, page by page: with pages of 2 MiB instead of 4 KiB a step takes about two thirds of
  the time (docs/architecture.md). glibc reads the setting at its start only, hence again; another C
  library ignores it.
  """
  given = os.environ.get("GLIBC_TUNABLES", "")
  if TUNABLE not in given:
    os.environ["GLIBC_TUNABLES"] = ":".join(filter(None, [given, f"{TUNABLE}=1"]))
    os.execv(sys.executable, sys.orig_argv)
