"""Every recipe against Table 3 of the paper, and its shapes without computing."""

import csv
import functools
import pathlib
import runpy

import jax
import jax.numpy as jnp
import pytest

from vit_jax import config as c
from vit_jax import models, optim, state, train_step

CONFIGS = pathlib.Path(__file__).parents[1] / "configs"
TABLE3 = pathlib.Path(__file__).parent / "paper" / "table3_pretraining.csv"
DATASETS = {"JFT-300M": "jft", "ImageNet-21k": "i21k", "ImageNet": "i1k"}


def load(name, *arguments):
  return c.from_dict(
    runpy.run_path(str(CONFIGS / f"{name}.py"))["get_config"](*arguments).to_dict()
  )


def table3():
  """(recipe file, epochs, row) for every ViT of Table 3."""
  for row in csv.DictReader(TABLE3.read_text().splitlines()):
    models = row["models"].split(", ")
    if row["models"] == "ViT-*":
      models = ["ViT-B/16", "ViT-B/32", "ViT-L/16", "ViT-L/32"]  # those with results in Table 5
    for model in models:
      if model.startswith("ViT-"):
        file = model.lower().replace("-", "_").replace("/", "") + "_" + DATASETS[row["dataset"]]
        for epochs in row["epochs"].split(" or "):
          yield file, model, epochs, row


@pytest.mark.parametrize(("file", "model", "epochs", "row"), list(table3()))
def test_recipe_is_the_row_of_table_3(file, model, epochs, row):
  config = load(file, epochs)
  assert config.model.name == model
  assert config.duration == c.Duration(epochs=float(epochs))
  assert config.schedule.learning_rate == float(row["base_lr"])
  assert config.schedule.decay == row["lr_decay"]
  assert config.optimizer.weight_decay == float(row["weight_decay"])
  assert config.model.dropout == float(row["dropout"])
  # Section 4.1, the same for all rows.
  assert (config.optimizer.kind, config.optimizer.beta1, config.optimizer.beta2) == (
    "adam",
    0.9,
    0.999,
  )
  assert config.batch_size == 4096
  assert config.schedule.warmup == c.Duration(steps=10_000)
  assert config.data.image_size == 224
  assert config.data.crop_area == (0.05, 1.0)
  assert config.model.representation_layer
  assert config.optimizer.clip_norm == (1.0 if row["dataset"] == "ImageNet" else 0.0)
  # The authors' answers.
  sigmoid = row["dataset"] != "ImageNet"
  assert config.loss.kind == ("sigmoid" if sigmoid else "softmax")
  assert config.model.head_bias == (-10.0 if sigmoid else 0.0)
  assert config.schedule.end_learning_rate == (1e-5 if row["lr_decay"] == "linear" else 0.0)


def test_no_recipe_is_left_out_of_the_test():
  tested = {file for file, *_ in table3()}
  assert {path.stem for path in CONFIGS.glob("*.py")} - tested == {"vit_digits", "vit_fashion"}


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.py")), ids=lambda path: path.stem)
def test_shapes_of_a_whole_step(path):
  config = load(path.stem)
  model, optimizer = models.configured(config.model), optim.make(config.optimizer)
  rate = optim.schedule(
    learning_rate=1.0, warmup_steps=0, total_steps=9, decay="linear", end_learning_rate=0.0
  )
  init = functools.partial(
    state.init,
    model,
    optimizer,
    seed=0,
    image_size=config.data.image_size,
    with_ema=bool(config.optimizer.ema),
  )
  before = jax.eval_shape(init)
  size, side = config.batch_size, config.data.image_size
  batch = dict(
    image=jax.ShapeDtypeStruct((size, side, side, 3), jnp.uint8),
    labels=jax.ShapeDtypeStruct((size, config.model.num_classes), jnp.uint8),
    mask=jax.ShapeDtypeStruct((size,), jnp.float32),
  )
  after, metrics = jax.eval_shape(train_step.make(model, optimizer, rate, config), before, batch)
  same = jax.tree.map(lambda a, b: (a.shape, a.dtype) == (b.shape, b.dtype), before, after)
  assert all(jax.tree.leaves(same))
  assert {x.shape for x in metrics.values()} == {()}


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.py")), ids=lambda path: path.stem)
def test_docstring_gives_command_and_step_count(path):
  text = runpy.run_path(str(path))["__doc__"]
  assert f"--config=configs/{path.name}" in text
  assert " steps" in text


def test_an_unknown_length_lists_the_known_ones():
  with pytest.raises(c.ConfigError, match=r"'8' is none of 7, 14"):
    load("vit_l16_jft", "8")
