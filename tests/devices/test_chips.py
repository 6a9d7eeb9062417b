"""The table of accelerators."""

import pytest

from vit_jax.devices.chips import chip


@pytest.mark.parametrize(
  ("kind", "peak"),
  [
    ("TPU v3", 61.5e12),
    ("TPU v5 lite", 197e12),
    ("TPU v5p", 459e12),
    ("NVIDIA H200", 989e12),
    ("NVIDIA H100 80GB HBM3", 989e12),
    ("NVIDIA H100 PCIe", 756e12),
    ("NVIDIA A100-SXM4-80GB", 312e12),
    ("NVIDIA A100 80GB PCIe", 312e12),
  ],
)
def test_peaks(kind, peak):
  assert chip(kind).peak_flops == peak


@pytest.mark.parametrize(
  "kind",
  [
    "cpu",
    "TPU v4 lite",
    "NVIDIA H100 NVL",
    "NVIDIA H200 NVL",
    "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
    "NVIDIA A100X",
    "NVIDIA A10",
    "",
  ],
)
def test_another_form_of_a_chip_has_not_its_figures(kind):
  assert chip(kind) is None
