"""The recipes from scratch and of masked autoencoders against a table of their sources."""

import numpy as np
import pytest

from tests import modules
from tests.recipes.paper import docstring, load, table
from tests.seams import program
from vit_jax import config as c
from vit_jax import models, weights
from vit_jax.storage import metrics_log
from vit_jax.weights import Weights
from vit_jax.weights.card import Card

ROWS = table("from_scratch.csv")


def step(config, kind, *names):
  """Settings of the augmentation's step of a kind, with commas between; "" without one."""
  for one in config.data.augment:
    if one.kind == kind:
      return ",".join(f"{getattr(one, name):g}" for name in names)
  return ""


QUANTITIES = {
  "epochs": lambda c: c.duration.epochs,
  "batch": lambda c: c.batch_size,
  "side": lambda c: c.data.image_size,
  "split": lambda c: c.data.train.split,
  "evaluation resize": lambda c: c.data.evaluate_resize,
  "optimizer": lambda c: c.optimizer.kind,
  "epsilon": lambda c: c.optimizer.epsilon,
  "first moment": lambda c: c.optimizer.moment_dtype,
  "learning rate": lambda c: c.schedule.learning_rate,
  "rate for 256 images": lambda c: c.schedule.learning_rate * 256 / c.batch_size,
  "last rate": lambda c: c.schedule.end_learning_rate,
  "warm-up steps": lambda c: c.schedule.warmup.steps,
  "warm-up epochs": lambda c: c.schedule.warmup.epochs,
  "decay": lambda c: c.optimizer.weight_decay,
  "decay not times rate": lambda c: c.optimizer.weight_decay * c.schedule.learning_rate,
  "layer decay": lambda c: c.optimizer.layer_decay,
  "clip": lambda c: c.optimizer.clip_norm,
  "dropout": lambda c: c.model.dropout,
  "stochastic depth": lambda c: f"{c.model.stochastic_depth},{c.model.stochastic_depth_rule}",
  "LayerScale": lambda c: c.model.layer_scale * c.model.layer_scale_init,
  "head": lambda c: c.model.head_std,
  "positions": lambda c: c.model.positions,
  "pool": lambda c: c.model.pool,
  "mixup": lambda c: c.objective.mixup,
  "cutmix": lambda c: c.objective.cutmix,
  "label smoothing": lambda c: c.loss.label_smoothing,
  "images of one": lambda c: c.data.repeats,
  "resampling": lambda c: c.data.resampling,
  "crop rule": lambda c: c.data.crop_rule,
  "crop area": lambda c: c.data.crop_area[0],
  "augmentation": lambda c: ",".join(step.kind for step in c.data.augment),
  "randaug": lambda c: step(c, "rand_augment", "layers", "magnitude"),
  "colour jitter": lambda c: step(c, "color_jitter", "strength"),
  "erasing": lambda c: step(c, "random_erasing", "probability"),
}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join([*row.values()][:3]))
def test_every_number_is_the_sources(row):
  name, argument, quantity, value, _ = row.values()
  if quantity == "top-1":
    words = docstring(name).replace("%", " ").replace(",", " ").split()
    assert value in words
    return
  found = QUANTITIES[quantity](load(name, argument))
  assert found == value if isinstance(found, str) else found == pytest.approx(float(value))


SMALL = dict(depth=1, width=8, mlp_dim=8, heads=2)
ON_DIGITS = {
  "data.dataset": "",
  "data.train.source": "digits",
  "data.train.split": "train",
  "data.image_size": 32,
  "data.evaluate_resize": 0,
  "evaluate.val.source": "digits",
  "evaluate.val.split": "test",
  "model.num_classes": 10,
  **{f"model.{key}": value for key, value in SMALL.items()},
  "model.compute_dtype": "float32",
  "batch_size": 24,
  "accumulation": 1,
  "duration.epochs": 0,
  "duration.steps": 2,
  "schedule.warmup.epochs": 0,
  "evaluate_every.epochs": 0,
  "checkpoint.every.epochs": 0,
  "report": False,
}


@pytest.mark.usefixtures("one_device")
def test_two_small_steps(tmp_path):
  given = ON_DIGITS | {"evaluate.val.source": ""}
  words = [f"--config.{key}={value}" for key, value in given.items()]
  assert program.run(tmp_path / "run", *words, recipe="configs/deit3.py:B")
  losses = [line["loss"] for line in metrics_log.read_lines(tmp_path / "run") if "loss" in line]
  assert np.isfinite(losses).all()
  assert len(losses) == 2


def test_lamb_is_refused_with_a_head_that_begins_at_zero(tmp_path):
  words = [f"--config.{key}={value}" for key, value in (ON_DIGITS | {"model.head_std": 0}).items()]
  with pytest.raises(c.ConfigError, match=r"so head/kernel, which begins at zero"):
    program.run(tmp_path / "run", *words, recipe="configs/deit3.py:B")
  assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("one_device")
def test_fine_tuning_takes_the_weights_of_pre_training(tmp_path):
  words = [f"--config.{key}={value}" for key, value in ON_DIGITS.items()]
  module = models.create("ViT-B/16", **SMALL, num_classes=10, activation="gelu")
  params = modules.parameters(module, np.zeros((1, 16, 16, 3), np.float32), train=False)
  card = Card(image_size=16, model=c.Model(activation="gelu"))
  weights.write(tmp_path / "w.npz", Weights(params, card))
  more = (f"--config.init_from={tmp_path}/w.npz", "--config.evaluate.val.source=")
  assert program.run(tmp_path / "run", *words, *more, recipe="configs/mae_finetune.py:B")
