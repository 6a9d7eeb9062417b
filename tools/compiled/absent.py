"""Environment variables for compiling for devices that this machine does not have."""

import os


def prepare():
  """Sets the variables that JAX and libtpu read; call it before JAX is imported."""
  os.environ |= {
    # Programs are compiled for described devices, not for devices of this machine.
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    # Without these two, libtpu warns that it finds no TPU; it compiles the same programs.
    "TPU_ACCELERATOR_TYPE": "v3-8",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # several processes may compile at once
  }
