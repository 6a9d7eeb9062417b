"""A mutant takes the place of its module."""

import importlib
import sys

import pytest

from tests.mutation import trial
from tests.mutation.trial import Overlay
from tests.programs import ROOT
from vit_jax import data
from vit_jax.data import crops


def test_a_module_is_loaded_with_its_change(monkeypatch):
  path = ROOT / "vit_jax" / "data" / "crops.py"
  code = path.read_text().replace("_TRIES = 100", "_TRIES = 3")
  monkeypatch.setattr(sys, "meta_path", [Overlay(crops.__name__, path, code), *sys.meta_path])
  monkeypatch.setattr(data, "crops", crops)  # importing it again sets this
  monkeypatch.delitem(sys.modules, crops.__name__)
  changed = importlib.import_module(crops.__name__)
  assert (changed._TRIES, changed.__file__) == (3, str(path))


def test_a_module_that_is_imported_already_is_refused(tmp_path):
  """Its tests would pass on every mutant, which would be taken for survivors."""
  overlay = Overlay(crops.__name__, ROOT / "vit_jax" / "data" / "crops.py", "1 / 0")
  with pytest.raises(RuntimeError, match=r"vit_jax\.data\.crops is imported before the tests"):
    trial.run(overlay, ["tests/data/test_crops.py"], 1, tmp_path / "log")
