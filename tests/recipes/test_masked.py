"""The recipes of pre-training without labels against their papers, and their arguments."""

import dataclasses

import pytest

from tests.recipes.paper import docstring, load
from vit_jax import config as c
from vit_jax import models, recipes
from vit_jax.extras.dino.objective import Settings as DINO
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
  assert data.evaluate_resize == 256
  assert accuracy in docstring("mae")


@pytest.mark.parametrize(
  ("size", "name", "epochs", "warmup", "frozen", "rate", "end", "clip_norm", "accuracy"),
  [
    ("S", "ViT-S/16", 800, 30, 1, 5e-4, 1e-5, 0.0, "74.5%"),
    ("B", "ViT-B/16", 400, 50, 3, 7.5e-4, 2e-6, 3.0, "76.1%"),
  ],
)
def test_self_distillation_is_that_of_the_published_weights(
  size, name, epochs, warmup, frozen, rate, end, clip_norm, accuracy
):
  config = load("dino", size)
  assert (config.model.name, config.duration) == (name, c.Duration(epochs=epochs))
  assert config.objective == DINO(
    **dict(local_crops=10, local_side=96, local_area=(0.05, 0.25)),
    **dict(head_hidden=2048, head_bottleneck=256, head_outputs=65_536),
    **dict(student_temperature=0.1, first_teacher_temperature=0.04, teacher_temperature=0.07),
    **dict(
      temperature_warmup=warmup / epochs, frozen_prototypes=frozen / epochs, centre_momentum=0.9
    ),
  )
  adam = config.optimizer
  assert (adam.kind, adam.beta1, adam.beta2, adam.clip_norm) == ("adam", 0.9, 0.999, clip_norm)
  assert (adam.weight_decay, adam.end_weight_decay) == (0.04, 0.4)
  assert (adam.ema, adam.end_ema, adam.ema_corrected) == (0.996, 1.0, False)
  schedule = c.Schedule(rate * 4, c.Duration(epochs=10), decay="cosine", end_learning_rate=end)
  assert (config.schedule, config.batch_size) == (schedule, 1024)
  data = config.data
  assert (data.image_size, data.crop_area, data.evaluate_resize) == (224, (0.25, 1.0), 256)
  assert accuracy in docstring("dino")


IMAGES = recipes.DATASETS["imagenet"].examples


@pytest.mark.parametrize(("name", "rate"), [("mae", 1.2e-3), ("dino", 6e-3)])
def test_rates_follow_the_batch(name, rate):
  config = recipes.resolve(f"configs/{name}.py:B", ["--config.batch_size=2048"])
  assert config.schedule.learning_rate == pytest.approx(rate)


@pytest.mark.parametrize(
  ("words", "epochs"),
  [
    ("duration.epochs=100", 100),
    (f"duration.examples={100 * IMAGES}", 100),
    (f"duration.steps={50 * IMAGES} batch_size=2", 100),
    ("duration.epochs=25", 25),
    ("duration.examples=500000 data.train.subset=5000", 100),
    ("duration.steps=0", 400),  # the recipe's
    ("duration.steps=2000 batch_size=32", 2000 * 32 / IMAGES),
  ],
)
def test_fractions_of_the_run_follow_its_length_in_every_unit(words, epochs):
  texts = [f"--config.{word}" for word in words.split()]
  objective = recipes.resolve("configs/dino.py:B", texts).objective
  assert objective.temperature_warmup == pytest.approx(min(50 / epochs, 1))
  assert objective.frozen_prototypes == pytest.approx(min(3 / epochs, 0.2))
