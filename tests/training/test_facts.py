"""The facts of training data that rules of settings read."""

import errno

import numpy as np
import pytest

from tests.data.numbered import Listed
from tests.weights import families
from vit_jax import weights
from vit_jax.config import AUTO, Config, ConfigError, Model
from vit_jax.config.data import SIDE
from vit_jax.data.sources import Example
from vit_jax.extras.buckets.errors import RefusedError
from vit_jax.storage import base
from vit_jax.training import facts
from vit_jax.training.facts import median_side

FIXED = "sincos2d"


@pytest.mark.parametrize(
  ("given", "known", "said"), [(AUTO, "none", True), ("none", "none", False), (FIXED, FIXED, False)]
)
def test_positions_that_nothing_tells_are_said_unless_they_are_given(
  tmp_path, caplog, given, known, said
):
  weights.save(tmp_path / "w.npz", families.params("none"))
  config = Config(init_from=str(tmp_path / "w.npz"), model=Model(positions=given))
  start = facts.of_start()
  assert start["card"](config).model.positions == known
  assert start["start"](config) is start["start"](config)
  assert ("nothing says whether their model adds fixed ones" in caplog.text) == said


def of_sides(*sides):
  """Square images of these sides; an error in place of a side is raised when it is read."""
  return Listed(
    [
      side if isinstance(side, Exception) else Example(np.zeros((side, 99, 3), np.uint8), (0,), "a")
      for side in sides
    ]
  )


def test_the_median_of_the_sides_leaves_out_what_cannot_be_read():
  gone, large = FileNotFoundError(errno.ENOENT, "gone"), OSError(errno.EFBIG, "too large")
  assert median_side(of_sides(40, gone, 50, large, 60, 99), max_pixels=80 * 99) == 50
  assert median_side(of_sides(gone, large), max_pixels=10**6) == SIDE


def test_an_image_of_the_median_is_read_again_as_in_training(monkeypatch):
  monkeypatch.setattr(base, "PAUSES", (0,))
  errors = [OSError(errno.ESTALE, "moved"), None]

  class Recovers(Listed):
    def __getitem__(self, index):
      if index == 0 and (error := errors.pop(0)):
        raise error
      return super().__getitem__(index)

  source = Recovers(of_sides(40)._examples)
  assert median_side(source, max_pixels=10**6) == 40
  with pytest.raises(ConfigError, match="no permission"):
    median_side(of_sides(40, RefusedError(errno.EACCES, "no permission")), max_pixels=10**6)
