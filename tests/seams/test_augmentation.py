"""An augmentation is one file and one line: a toy goes through the main program."""

import dataclasses
import functools
import json

import pytest
from PIL import Image

from tests.seams import program
from vit_jax import registry
from vit_jax.config import Augmentation, ConfigError
from vit_jax.config.fields import name_of_kind, setting
from vit_jax.extras.report import report
from vit_jax.extras.settings_page import page
from vit_jax.storage.workdir import AUGMENTED, IMAGES

pytestmark = pytest.mark.usefixtures("one_device")

WORDS = ("--config.duration.epochs=0", "--config.duration.steps=4")
TOY = "--config.data.augment=[{'kind': 'stripes', 'period': 3}]"


@dataclasses.dataclass(frozen=True)
class Stripes(Augmentation):
  """Makes some rows black."""

  kind: str = name_of_kind("stripes", "some rows become black")
  period: int = setting(2, "rows from one to the next", low=2, high=8)

  def draw(self, rng, side):
    """One operation, with a random first row."""
    assert side >= self.period
    return [functools.partial(striped, first=int(self.period * rng.random()), period=self.period)]


STRIPED = []  # the first row of each image so far


def striped(pixels, first, period):
  """The pixels with rows that are black."""
  STRIPED.append(first)
  out = pixels.copy()
  out[first::period] = 0
  return out


@pytest.fixture(autouse=True)
def line(monkeypatch):
  monkeypatch.setitem(registry.AUGMENTATIONS, "stripes", f"{__name__}:Stripes")


def test_it_trains_and_is_in_the_report(tmp_path):
  whole = tmp_path / "whole"
  STRIPED.clear()
  assert program.run(whole, TOY, *WORDS)
  assert len(STRIPED) >= 4 * 32  # each image of each step
  settings = json.loads((whole / "config.json").read_text())["data"]["augment"]
  assert settings == [{"kind": "stripes", "period": 3}]
  report.write([whole], tmp_path / "report.html", inside=False)
  text = (tmp_path / "report.html").read_text()
  assert "data.augment" in text
  assert "after stripes: striped" in text
  with Image.open(whole / IMAGES / AUGMENTED / "0.png") as strip:
    assert strip.width > 4 * strip.height / 2  # four images beside one another
  assert "| `period = 2` | rows from one to the next" in page()
  with pytest.raises(ConfigError, match=r"augment\[0\]\.period=9 is too large .* the most is 8"):
    program.run(tmp_path / "run", TOY.replace("3", "9"), *WORDS)
