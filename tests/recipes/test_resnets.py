"""ResNets on ImageNet and ImageNet-21k with Adam, and by BiT's recipe with SGD (Table 7)."""

import dataclasses

import pytest

from tests.recipes.paper import docstring, load
from vit_jax import config as c
from vit_jax import recipes
from vit_jax.learning.optimizers.sgd import SGD
from vit_jax.training import checks


@pytest.mark.parametrize(("dataset", "vit"), [("imagenet", "i1k"), ("imagenet21k", "i21k")])
def test_resnets_train_as_the_vits_of_the_dataset_do(dataset, vit):
  """Section 4.1: the same set-up; a ResNet has no representation layer and no dropout."""
  config = load("resnet", f"R101x3,{dataset}")
  transformer = load(f"vit_b16_{vit}")
  model = dataclasses.replace(
    transformer.model, name="R101x3", representation_layer=False, dropout=0.0
  )
  assert config == dataclasses.replace(transformer, model=model)
  checks.check_model(config.model, 224)


@pytest.mark.parametrize(
  ("dataset", "epochs", "drops"),
  [
    ("jft", 7, (1.75, 4.025, 5.25, 6.475)),  # BiT's 10, 23, 30 and 37 of 40 epochs
    ("imagenet21k", 90, (30, 60, 80)),
    ("imagenet", 90, (30, 60, 80)),
  ],
)
@pytest.mark.parametrize("model", ["R50x1", "R152x2"])
def test_sgd_is_the_one_of_bit(model, dataset, epochs, drops):
  config = load("resnet_sgd", f"{model},{dataset}")
  assert (config.model.name, config.duration) == (model, c.Duration(epochs=epochs))
  assert config.optimizer == SGD(momentum=0.9, weight_decay=1e-4, decay_kind="coupled", ema=0.0)
  assert config.schedule.learning_rate == pytest.approx(0.03 * 4096 / 256)
  assert config.schedule.warmup == c.Duration(steps=5000)
  assert [share * epochs for share in config.schedule.drops] == pytest.approx(list(drops))
  adam = recipes.pretrain(model, dataset, epochs=epochs, learning_rate=1.0, resnet=True)
  for group in ("batch_size", "model", "loss", "data", "evaluate"):
    assert getattr(config, group) == getattr(adam, group)
  checks.check_schedule(config.schedule)
  steps = c.Duration(epochs=epochs).in_steps(
    batch_size=4096, epoch_examples=recipes.DATASETS[dataset].examples
  )
  assert f"{steps:,} steps" in docstring("resnet_sgd")


def test_settings_of_sgd_can_be_replaced():
  words = ["--config.optimizer.momentum=0.95", "--config.batch_size=512"]
  config = recipes.resolve("configs/resnet_sgd.py:R50x1,jft", words)
  assert config.optimizer.momentum == 0.95
  assert config.schedule.learning_rate == pytest.approx(0.06)
