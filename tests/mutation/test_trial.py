"""A mutant takes the place of its module."""

import importlib
import sys

from tests.mutation.trial import Overlay
from tests.programs import ROOT
from vit_jax import data
from vit_jax.data import resizing


def test_a_module_is_loaded_with_its_change(monkeypatch):
  path = ROOT / "vit_jax" / "data" / "resizing.py"
  code = path.read_text().replace("256 / 224", "3")
  monkeypatch.setattr(sys, "meta_path", [Overlay(resizing.__name__, path, code), *sys.meta_path])
  monkeypatch.setattr(data, "resizing", resizing)  # importing it again sets this
  monkeypatch.delitem(sys.modules, resizing.__name__)
  changed = importlib.import_module(resizing.__name__)
  assert (changed.SQUARE, changed.__file__) == (3, str(path))
