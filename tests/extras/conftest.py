"""Fixtures that several test files use."""

import pytest

from tests.data.conftest import at_once  # noqa: F401 - a fixture
from vit_jax.extras.preparation import prepare


@pytest.fixture
def small_files(monkeypatch, tmp_path):
  monkeypatch.setattr(prepare, "_FILE_BYTES", 20_000)  # several files
  monkeypatch.setattr(prepare, "_SAMPLE", 4)
  monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "tfds"))
