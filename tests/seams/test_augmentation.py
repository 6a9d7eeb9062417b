"""An augmentation is one file and one line: a toy goes through the main program."""

import dataclasses
import functools
import json

import jax
import numpy as np
import pytest
from PIL import Image

from tests import resolved
from tests.seams import program
from vit_jax import recipes, registry
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


def striped(pixels, first, period):
  """The pixels with rows that are black."""
  out = pixels.copy()
  out[first::period] = 0
  return out


@pytest.fixture(autouse=True)
def line(monkeypatch):
  monkeypatch.setitem(registry.AUGMENTATIONS, "stripes", f"{__name__}:Stripes")


def first_batch(*words):
  """The images of the first step of a run, as the devices get them."""
  config = recipes.resolve("configs/vit_digits.py", [*program.SMALL, *WORDS, *words])
  with resolved.run(config, jax.devices()[:1]).batches() as batches:
    return np.asarray(next(batches)["image"])


def test_the_images_of_a_step_are_augmented_and_otherwise_the_same():
  plain, found = first_batch(), first_batch(TOY)
  assert plain.any()
  starts = []
  for before, after in zip(plain, found, strict=True):
    made = [np.array_equal(after, striped(before, first, 3)) for first in range(3)]
    starts += [first for first in range(3) if made[first]][:1]
  assert len(starts) == len(plain) == 32
  assert set(starts) == {0, 1, 2}


def test_it_trains_and_is_in_the_report(tmp_path):
  whole = tmp_path / "whole"
  assert program.run(whole, TOY, *WORDS)
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
