"""Fixtures that several test files use."""

import pytest

from vit_jax.extras.preparation import prepare
from vit_jax.storage import base


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
  """What fails is read again without a pause."""
  monkeypatch.setattr(base, "PAUSES", (0.0, 0.0, 0.0))


@pytest.fixture
def small_files(monkeypatch, tmp_path):
  monkeypatch.setattr(prepare, "_FILE_BYTES", 20_000)  # several files
  monkeypatch.setattr(prepare, "_SAMPLE", 4)
  monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "tfds"))
