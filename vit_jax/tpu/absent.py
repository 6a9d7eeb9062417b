"""Compiling for TPUs that are not there: what their library must be told before it is loaded."""

import os


def prepare():
  """Sets the variables that JAX and libtpu read; to be called before JAX is imported."""
  os.environ |= {
    # The programs are made for devices that are described, not for any that are here.
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    # Without these two the library complains that it finds no TPU; what it compiles is the same.
    "TPU_ACCELERATOR_TYPE": "v3-8",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # a compiler is not a chip: several may run at once
  }
