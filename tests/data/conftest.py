"""A fixture for all tests of data."""

import pytest

from vit_jax.data import retry_reads


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
  """What fails is read again without a pause."""
  monkeypatch.setattr(retry_reads, "PAUSES", (0.0, 0.0, 0.0))
