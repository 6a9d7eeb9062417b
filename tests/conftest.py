"""Eight simulated devices on the CPU for every test, exact float32 products, quick compilation."""

import os

# The tests compile much and compute little: leave out the compiler's slow passes.
os.environ["XLA_FLAGS"] = (
  "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
)
os.environ["JAX_PLATFORMS"] = "cpu"  # also where libtpu is installed
# Enough threads for all devices to wait in as many collectives at once (see tests/programs.py).
os.environ["PJRT_NPROC"] = "16"

import jax  # reads the flags above

jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_default_matmul_precision", "highest")
