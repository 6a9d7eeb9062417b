"""What the makers' data sheets say of accelerators: peak speed, memory, clock."""

from typing import NamedTuple

GIB = 2**30


class Chip(NamedTuple):
  """One JAX device. A TPU v2 or v3 chip is two of them; from v4 on a chip is one.

  Attributes:
    peak_flops: FLOP/s of dense products in bfloat16.
    hbm_bytes: high-bandwidth memory; None where it is not needed: no program is compiled for it.
    clock_hz: cycles a second, the peak over the operations of the matrix units in a cycle; None as
      above.
  """

  peak_flops: float
  hbm_bytes: int | None = None
  clock_hz: float | None = None


# By the beginning of `jax.Device.device_kind`; the longest that fits counts.
CHIPS = {
  "TPU v2": Chip(22.5e12, 8 * GIB, 0.7e9),
  "TPU v3": Chip(61.5e12, 16 * GIB, 0.94e9),
  "TPU v4": Chip(275e12, 32 * GIB, 1.05e9),
  "TPU v5 lite": Chip(197e12, 16 * GIB, 1.5e9),
  "TPU v5e": Chip(197e12, 16 * GIB, 1.5e9),
  "TPU v5": Chip(459e12, 95 * GIB, 1.75e9),
  "TPU v6 lite": Chip(918e12, 32 * GIB, 1.75e9),
  "TPU v6e": Chip(918e12, 32 * GIB, 1.75e9),
  "NVIDIA A100": Chip(312e12),
  "NVIDIA H100": Chip(989e12),
  "NVIDIA H200": Chip(989e12),
}


def chip(device_kind: str) -> Chip | None:
  """The chip of a device by its kind, such as "TPU v4"; None where it is not in the table."""
  matches = [kind for kind in CHIPS if device_kind.startswith(kind)]
  return CHIPS[max(matches, key=len)] if matches else None
