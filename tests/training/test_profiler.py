"""A profile that is never made is said."""

import pytest

from vit_jax.config import Profile
from vit_jax.training.profiler import Profiler


@pytest.mark.parametrize(("count", "words"), [(5, 1), (0, 0)])
def test_a_window_after_the_end_is_said(tmp_path, count, words):
  said = []
  profiler = Profiler(Profile(first_step=10, steps=count), tmp_path, said.append)
  for step in range(1, 9):
    profiler.before(step)
  profiler.end(8)
  assert len(said) == words
  assert all("first_step=10 was not reached" in line for line in said)
  assert not list(tmp_path.iterdir())
