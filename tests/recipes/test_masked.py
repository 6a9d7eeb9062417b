"""The recipes of masked patch prediction against Appendix B.1.2 and their arguments."""

import dataclasses

import pytest

from tests.recipes.paper import docstring, load
from vit_jax import config as c
from vit_jax.extras.masked_patches.objective import Masked

NAMES = ("masked_vit_b16_jft", "masked_vit_b16_i1k")


@pytest.mark.parametrize("name", NAMES)
def test_settings_are_the_paper_s(name):
  config = load(name, "1m")
  assert config.model.name == "ViT-B/16"
  assert config.objective == Masked(rate=0.5, target="mean_color")
  optimizer = config.optimizer
  assert (optimizer.kind, optimizer.beta1, optimizer.beta2) == ("adam", 0.9, 0.999)
  assert (optimizer.weight_decay, optimizer.clip_norm) == (0.1, 0.0)
  wanted = c.Schedule(learning_rate=2e-4, warmup=c.Duration(steps=10_000), decay="cosine")
  assert config.schedule == wanted
  assert (config.batch_size, config.data.image_size) == (4096, 224)
  assert config.duration == c.Duration(steps=1_000_000)
  assert "79.9%" in docstring(name)


def test_lengths_targets_and_rates_by_argument():
  assert load("masked_vit_b16_jft") == load("masked_vit_b16_jft", "1m")
  assert load("masked_vit_b16_i1k") == load("masked_vit_b16_i1k", "100k")
  short = load("masked_vit_b16_jft", "100k,down4,0.15")
  assert short.duration == c.Duration(steps=100_000)
  assert short.objective == Masked(rate=0.15, target="down4")
  whole = load("masked_vit_b16_jft")
  assert dataclasses.replace(whole, duration=short.duration, objective=short.objective) == short
  assert load("masked_vit_b16_jft", "1m,pixels").objective == Masked(target="pixels")
