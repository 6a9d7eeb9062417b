"""Peak speed, memory and clock of accelerators, from the manufacturers' data sheets.

Memory size and bandwidth of GPUs are as the devices report them (XLA's descriptions in
xla/backends/gpu/target_config/specs), a little less than the data sheets' round figures.
"""

from typing import NamedTuple

GIB = 2**30


class Chip(NamedTuple):
  """One JAX device. A TPU v2 or v3 chip is two of them; from v4 on a chip is one.

  Attributes:
    peak_flops: FLOP/s of dense matmuls in bfloat16.
    hbm_bytes: size of the memory.
    clock_hz: cycles a second: the peak divided by the operations of the matrix units in a cycle;
      None for GPUs, whose compiler counts no cycles.
    hbm_bandwidth: bytes a second.
    link_bandwidth: bytes a second that a GPU sends to the others of its machine, by NVLink, or by
      PCIe where there is none; None for TPUs.
    network_bandwidth: bytes a second that a GPU sends to other machines, with the network cards of
      the manufacturer's own machines (DGX); None where there is no such machine.
  """

  peak_flops: float
  hbm_bytes: int
  clock_hz: float | None
  hbm_bandwidth: float
  link_bandwidth: float | None = None
  network_bandwidth: float | None = None


# By whole `jax.Device.device_kind`s: another form factor of a chip, or a slice of one (MIG), has
# other numbers. The H100 with 80 GB HBM3 is the SXM form factor.
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
  "NVIDIA A100-PCIE-40GB": Chip(312e12, 42_331_013_120, None, 1.5552e12, 32e9),
  "NVIDIA A100-SXM4-40GB": Chip(312e12, 42_331_013_120, None, 1.5552e12, 300e9, 25e9),
  "NVIDIA A100-SXM4-80GB": Chip(312e12, 85_100_068_864, None, 2.03904e12, 300e9, 25e9),
  "NVIDIA A100 80GB PCIe": Chip(312e12, 79_050_250_240, None, 2.039e12, 32e9),
  "NVIDIA RTX A6000": Chip(154.8e12, 51_041_271_808, None, 0.768096e12, 32e9),
  "NVIDIA H100 80GB HBM3": Chip(989e12, 84_942_979_072, None, 3.35232e12, 450e9, 50e9),
  "NVIDIA H100 PCIe": Chip(756e12, 84_942_979_072, None, 2.03904e12, 64e9),
  "NVIDIA H200": Chip(989e12, 151_397_597_184, None, 4.8e12, 450e9, 50e9),
  "NVIDIA B200": Chip(2250e12, 191_514_411_008, None, 7.67232e12, 900e9, 50e9),
  "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": Chip(
    503.8e12, 103_079_215_104, None, 1.792e12, 64e9
  ),
}
