"""Compiling for devices that this machine does not have: where the compilers are, and variables."""

import os
import pathlib
import sys

PLACES = (pathlib.Path.cwd(), pathlib.Path(__file__).resolve().parents[3])  # here, or a clone
FOLDERS = (
  ".libtpu",
  ".libgpu",
)  # apart from the other packages: JAX looks for devices where


def prepare():
  """Shows JAX the compilers, and sets the variables that it reads; call it before importing JAX."""
  sys.path += [str(place / folder) for place in PLACES for folder in FOLDERS]
  os.environ |= {
    # Programs are compiled for described devices, not for devices of this machine.
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    # Without these two, libtpu warns that it finds no TPU; it compiles the same programs.
    "TPU_ACCELERATOR_TYPE": "v3-8",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # several processes may compile at once
  }
