"""Eight simulated devices on the CPU for every test, exact float32 products, quick compilation."""

import os

# The tests compile much and compute little: leave out the compiler's slow passes.
os.environ["XLA_FLAGS"] = (
  "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
)

import jax  # reads the flags above

jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_default_matmul_precision", "highest")
