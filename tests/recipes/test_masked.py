"""The recipes of pre-training without labels against their papers, and their arguments."""

import dataclasses

import pytest

from tests.recipes.paper import docstring, load
from vit_jax import config as c
from vit_jax import models, recipes
from vit_jax.extras.mae import Settings as MAE
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


@pytest.mark.parametrize(
  ("size", "name", "accuracy"),
  [("B", "ViT-B/16", "83.6"), ("L", "ViT-L/16", "85.9"), ("H", "ViT-H/14", "86.9")],
)
def test_masked_autoencoders_are_those_of_table_8(size, name, accuracy):
  config = load("mae", size)
  assert (config.model.name, config.model.positions) == (name, "sincos2d_mae")
  made = MAE(mask_ratio=0.75, decoder_depth=8, decoder_width=512, decoder_heads=16)
  assert config.objective == made
  assert made.decoder(models.configured(config.model)).mlp_dim == 2048
  adam = config.optimizer
  assert (adam.kind, adam.beta1, adam.beta2, adam.weight_decay) == ("adam", 0.9, 0.95, 0.05)
  assert (config.batch_size, config.duration) == (4096, c.Duration(epochs=1600))
  rate = 1.5e-4 * 4096 / 256
  assert config.schedule == c.Schedule(rate, c.Duration(epochs=40), decay="cosine")
  data = config.data
  assert (data.crop_area, data.crop_rule, data.flip) == ((0.2, 1.0), "random_resized", True)
  assert (data.resampling, data.image_size) == ("torchvision_bicubic", 224)
  assert accuracy in docstring("mae")


def test_the_rate_follows_the_batch():
  smaller = recipes.resolve("configs/mae.py:B", ["--config.batch_size=1024"])
  assert smaller.schedule.learning_rate == pytest.approx(6e-4)
