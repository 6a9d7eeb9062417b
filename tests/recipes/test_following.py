"""What a recipe derives from a setting follows where the command line replaces that setting."""

import dataclasses

import pytest

from vit_jax import recipes
from vit_jax.config import ConfigError, Data, overrides
from vit_jax.config.run import Config
from vit_jax.recipes import own_images
from vit_jax.weights.card import Card


def resolved(recipe, *words):
  config = recipes.resolve(f"configs/{recipe}", [f"--config.{word}" for word in words])
  return dataclasses.replace(config, origins=())


@pytest.mark.parametrize(
  ("recipe", "words", "other"),
  [
    ("train.py:digits", ("model.name=ViT-S/8",), "train.py:digits,ViT-S/8"),
    (
      "train.py:digits",
      ("model.name=vit_small_patch16_224",),
      "train.py:digits,vit_small_patch16_224",
    ),
    ("finetune.py:ViT-B/16,imagenet", ("model.name=ViT-H/14",), "finetune.py:ViT-H/14,imagenet"),
    ("finetune.py:ViT-B/16,pets", ("model.name=ViT-H/14",), "finetune.py:ViT-H/14,pets"),
    ("vtab.py:ViT-B/16,pets", ("model.name=ViT-H/14",), "vtab.py:ViT-H/14,pets"),
  ],
)
def test_a_replaced_setting_gives_the_recipe_that_had_it_from_the_start(recipe, words, other):
  assert resolved(recipe, *words) == resolved(other)


@pytest.mark.parametrize(
  ("recipe", "word", "derived"),
  [
    ("train.py:digits", "duration.steps=6", dict(warmup=1, every=1, ema=0.0)),
    ("train.py:digits", "duration.steps=4000", dict(warmup=200, every=400, ema=0.9875)),
    ("finetune.py:ViT-B/16,cifar10", "duration.steps=100", dict(warmup=20, every=10)),
    ("hyperrule.py:R50x1,cifar10", "duration.steps=100", dict(warmup=20, every=10)),
    ("vtab.py:ViT-B/16,pets", "duration.steps=100", dict(warmup=20)),
    ("resnet_sgd.py:R50x1,jft", "batch_size=256", dict(rate=0.03)),
    ("mae_finetune.py:B", "batch_size=512", dict(rate=1e-3)),
    ("deit3.py:B", "data.image_size=96", dict(resize=96)),
    ("augreg.py", "data.image_size=112", dict(resize=128)),
    ("hyperrule.py:R50x1,cifar10", "data.image_size=64", dict(train_resize=80)),
  ],
)
def test_what_is_derived_follows(recipe, word, derived):
  config = resolved(recipe, word)
  found = dict(
    warmup=config.schedule.warmup.steps,
    every=config.evaluate_every.steps,
    ema=config.optimizer.ema,
    rate=config.schedule.learning_rate,
    resize=config.data.evaluate_resize,
    train_resize=config.data.train_resize,
  )
  assert {key: found[key] for key in derived} == derived


def test_the_command_line_has_the_last_word():
  config = resolved("train.py:digits", "duration.steps=4000", "schedule.warmup.steps=7")
  assert config.schedule.warmup.steps == 7
  config = overrides.replaced(
    Config(data=Data(image_size=224, evaluate_resize=256)),
    {"data.image_size": "112", "data.evaluate_resize": "120"},
  )
  assert config.data.evaluate_resize == 120


def test_weights_and_data_of_a_recipe_are_named_in_its_argument(monkeypatch):
  monkeypatch.setattr(own_images, "card_of", lambda weights: Card(image_size=518, resize=592))
  config = resolved("finetune.py:w.npz,digits", "data.image_size=112")
  assert config.data.evaluate_resize == 128
  for recipe in ("train.py:digits", "finetune.py:w.npz,digits"):
    with pytest.raises(ConfigError, match=r"replaces digits.*the recipe's argument"):
      resolved(recipe, "data.train.source=synthetic:8")
  with pytest.raises(ConfigError, match=r"init_from=v.npz replaces w.npz"):
    resolved("finetune.py:w.npz,digits", "init_from=v.npz")
