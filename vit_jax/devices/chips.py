"""Peak speed, memory and clock of accelerators, from the manufacturers' data sheets."""

from typing import NamedTuple

GIB = 2**30


class Chip(NamedTuple):
  """One JAX device. A TPU v2 or v3 chip is two of them; from v4 on a chip is one.

  Attributes:
    peak_flops: FLOP/s of dense products in bfloat16.
    hbm_bytes: size of the high-bandwidth memory; None for GPUs, where nothing needs it.
    clock_hz: cycles a second: the peak divided by the operations of the matrix units in a cycle;
      None for GPUs.
    hbm_bandwidth: bytes a second; None for GPUs.
  """

  peak_flops: float
  hbm_bytes: int | None = None
  clock_hz: float | None = None
  hbm_bandwidth: float | None = None


# The keys are whole `jax.Device.device_kind`s: another form of a chip, or a part of one (MIG), has
# other numbers. The H100 of 80 GB HBM3 is the SXM form.
CHIPS = {
  "TPU v2": Chip(22.5e12, 8 * GIB, 0.7e9, 350e9),
  "TPU v3": Chip(61.5e12, 16 * GIB, 0.94e9, 450e9),
  "TPU v4": Chip(275e12, 32 * GIB, 1.05e9, 1200e9),
  "TPU v5 lite": Chip(197e12, 16 * GIB, 1.5e9, 819e9),
  "TPU v5e": Chip(197e12, 16 * GIB, 1.5e9, 819e9),
  "TPU v5": Chip(459e12, 95 * GIB, 1.75e9, 2765e9),
  "TPU v5p": Chip(459e12, 95 * GIB, 1.75e9, 2765e9),
  "TPU v6 lite": Chip(918e12, 32 * GIB, 1.75e9, 1640e9),
  "TPU v6e": Chip(918e12, 32 * GIB, 1.75e9, 1640e9),
  "NVIDIA A100-PCIE-40GB": Chip(312e12),
  "NVIDIA A100-SXM4-40GB": Chip(312e12),
  "NVIDIA A100-SXM4-80GB": Chip(312e12),
  "NVIDIA A100 80GB PCIe": Chip(312e12),
  "NVIDIA H100 80GB HBM3": Chip(989e12),
  "NVIDIA H100 PCIe": Chip(756e12),
  "NVIDIA H200": Chip(989e12),
}


def chip(device_kind: str) -> Chip | None:
  """The chip of a device kind such as "TPU v4"; None if the table does not have it."""
  return CHIPS.get(device_kind)
