"""The table of accelerators."""

import pytest

from vit_jax.devices.chips import CHIPS


@pytest.mark.parametrize(
  ("kinds", "peak"),
  [
    (("TPU v3",), 61.5e12),
    (("TPU v5 lite",), 197e12),
    (("TPU v5p",), 459e12),
    (("NVIDIA H200", "NVIDIA H100 80GB HBM3"), 989e12),
    (("NVIDIA H100 PCIe",), 756e12),
    (("NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB PCIe"), 312e12),
    # Another form of a chip has not its figures.
    (("cpu", "", "TPU v4 lite", "NVIDIA H100 NVL", "NVIDIA H200 NVL"), None),
    (("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA A100X", "NVIDIA A10"), None),
  ],
)
def test_peaks(kinds, peak):
  assert {getattr(CHIPS.get(kind), "peak_flops", None) for kind in kinds} == {peak}
