"""A profile that is never made is said."""

import types

import pytest

from vit_jax.config import Profile as Settings
from vit_jax.training.callbacks import Profile
from vit_jax.training.steps import ImageCount


@pytest.mark.parametrize(("count", "words"), [(5, 1), (0, 0)])
def test_a_window_after_the_end_is_said(tmp_path, count, words):
  said = []
  config = types.SimpleNamespace(profile=Settings(first_step=10, steps=count))
  run = types.SimpleNamespace(config=config, images=ImageCount(5, 40, 8))
  writer = types.SimpleNamespace(say=said.append)
  profile = Profile(run, types.SimpleNamespace(folder=tmp_path, writer=writer))
  for step in range(6, 14):
    profile.before_step(step)
  profile.end(13)
  assert len(said) == words
  assert all("first_step=10 was not reached" in line for line in said)
  assert not list(tmp_path.iterdir())
