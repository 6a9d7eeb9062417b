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
  ],
)
def test_peaks(kind, peak):
  assert chip(kind).peak_flops == peak


def test_an_unknown_device():
  assert chip("cpu") is None
