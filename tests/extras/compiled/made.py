"""A program as the compiler describes it, from which tests make others."""

from vit_jax.extras.compiled import compilation

GIB = 2**30
PROGRAM = compilation.Program(
  devices=512,
  groups=512,
  device_kind="TPU v3",
  usable_bytes=16 * GIB,
  argument_bytes=7 * GIB,
  temporary_bytes=3 * GIB,
  peak_bytes=10 * GIB,
  fits=True,
  flops=1e13,
  step_seconds=0.27,
  optimal_seconds=0.21,
  collectives={"all-reduce": (2, 3 * 2**20)},
)
