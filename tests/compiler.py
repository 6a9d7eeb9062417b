"""Settings that let XLA compile for the CPU in a fraction of the time; imports no JAX.

The tests compile much and compute little: the slow passes of LLVM are left out, a program is one
module for LLVM and not 32 (a fifth less time), and where the compiler has two ways to write a fused
loop, it takes the one that is compiled 2.5 times as fast.
"""

import importlib.metadata
import pathlib

# Compiled programs are kept here, for all tests and the processes that they start: many compile the
# same ones. Otherwise a test that launches a run would keep those of later tests in the home.
CACHE = pathlib.Path(__file__).parents[1] / ".pytest_cache" / "compiled"
KEPT = {"JAX_COMPILATION_CACHE_DIR": str(CACHE), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
# No line of Python for each operation, which would cost a fiftieth of all the time.
KEPT |= {"JAX_TRACEBACK_IN_LOCATIONS_LIMIT": "0"}

QUICK = (
  "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
  " --xla_cpu_parallel_codegen_split_count=1"
)

if importlib.metadata.version("jaxlib").startswith("0.10."):  # later ones abort: unknown
  QUICK += " --xla_cpu_use_fusion_emitters=false"
