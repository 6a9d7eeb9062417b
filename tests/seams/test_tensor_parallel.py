"""Attention heads and MLPs split over devices: ViT-H/14 with two blocks, beside one device.

A family needs no more for it than its sharding rules; the toy below is a multilayer perceptron that
brings its own.
"""

import functools
import re

import chex
import flax.linen as nn
import jax
import numpy as np
import pytest

from tests import ends
from tests.seams import program
from vit_jax import config as c
from vit_jax import models
from vit_jax.devices import mesh as meshes
from vit_jax.learning import train_step
from vit_jax.learning.classification import Classification
from vit_jax.models import Network
from vit_jax.storage import checkpoint, metrics_log

SIDE, IMAGES, CLASSES = 28, 8, 16


class Perceptron(Network, nn.Module):
  """Two dense layers; the hidden channels are split over "model"."""

  sharding = (("in/.*", ("model",)), ("head/kernel", ("model", None)), (".*", meshes.LARGEST))

  num_classes: int = CLASSES
  dtype: type = np.float32

  @nn.compact
  def __call__(self, images, *, train):
    hidden = nn.relu(nn.Dense(1024, name="in")(images.reshape(len(images), -1)))
    return nn.Dense(self.num_classes, name="head")(hidden), {}


# The proportions of ViT-H/14.
H14 = dict(width=640, mlp_dim=2560, heads=8, num_classes=CLASSES, head_std=0.02)
FAMILIES = {
  "ViT-H/14": lambda: models.create("ViT-H/14", depth=1, **H14),
  "ViT-H/14, scanned": lambda: models.create("ViT-H/14", depth=2, scan=True, **H14),
  "perceptron": Perceptron,
}


@functools.cache
def example(family):
  """A model, parameters that give each of them a gradient, and a batch."""
  model, rng = FAMILIES[family](), np.random.default_rng(0)
  draw = lambda x: np.float32(0.02) * rng.standard_normal(x.shape, np.float32)
  params = jax.tree.map(draw, model.parameter_shapes(SIDE))
  image = rng.integers(0, 256, (IMAGES, SIDE, SIDE, 3), np.uint8)
  labels = np.int32(rng.integers(0, CLASSES, IMAGES))
  return model, params, dict(image=image, labels=labels, mask=np.ones(IMAGES, np.float32))


@functools.cache
def compiled(family, data, fsdp, model):
  """The function (params, batch) -> (loss, gradient), and where its arguments lie."""
  module, params, batch = example(family)
  devices = jax.devices()[: data * fsdp * model]
  split = c.Mesh(data=data, fsdp=fsdp, model=model)
  mesh = meshes.make(split, batch_size=IMAGES, accumulation=1, devices=devices)
  shardings = meshes.shardings(mesh, params, params, module.sharding)
  objective = Classification(module)

  def loss_and_gradient(params, batch):
    key = jax.random.key(0)
    of_part = functools.partial(train_step.loss_and_grads, objective, params, {})
    return train_step.means(of_part, params, objective.prepare(batch, key), key, 1)[:2]

  function = jax.jit(
    meshes.on(mesh, loss_and_gradient), out_shardings=(meshes.replicated(mesh), shardings)
  )
  placed = jax.device_put((params, batch), (shardings, meshes.batch_sharding(mesh)))
  return function.lower(*placed).compile(), placed


CASES = pytest.mark.parametrize(
  ("family", "on"),
  [
    ("ViT-H/14", (2, 2, 2)),
    ("ViT-H/14, scanned", (1, 2, 2)),
    ("perceptron", (1, 1, 8)),
  ],
)


@CASES
def test_loss_and_gradient_are_those_of_one_device(family, on):
  (whole, all_arguments), (part, arguments) = compiled(family, 1, 1, 1), compiled(family, *on)
  loss, gradient = whole(*all_arguments)
  found, of_split = part(*arguments)
  np.testing.assert_allclose(found, loss, rtol=1e-6)
  difference = jax.tree.map(lambda a, b: np.asarray(a) - np.asarray(b), of_split, gradient)
  norm = lambda tree: np.sqrt(sum(np.sum(np.float64(x) ** 2) for x in jax.tree.leaves(tree)))
  assert norm(difference) < 1e-5 * norm(gradient)


@CASES
def test_each_device_computes_and_holds_its_part(family, on):
  """Else every device would gather the parameters, and compute all heads."""
  part, (mine, _) = compiled(family, *on)
  whole, (all_parameters, _) = compiled(family, 1, 1, 1)
  flops = lambda program: program.cost_analysis()["flops"]
  assert flops(part) * np.prod(on) < 1.25 * flops(whole)
  held = meshes.bytes_per_device
  assert held(mine) * np.prod(on[1:]) < 1.1 * held(all_parameters)


RESNET = (
  "model.name=R50x1",
  *(f"model.{key}=auto" for key in ("depth", "width", "mlp_dim", "heads")),
)
WORDS = (
  "--config.model.width=64",
  "--config.model.mlp_dim=256",
  "--config.model.scan=true",
  "--config.model.dropout=0.1",
  "--config.optimizer.kind=sgd",
  "--config.schedule.learning_rate=1e-3",
  "--config.model.num_classes=auto",
  "--config.accumulation=2",
  "--config.duration.epochs=0",
  "--config.duration.steps=4",
  "--config.checkpoint.every.steps=2",
)
SPLIT = ("--config.mesh.fsdp=2", "--config.mesh.model=2", "--config.verify_every=1")


def test_a_run_is_that_of_other_devices_and_goes_on_on_them(tmp_path):
  """With an average; stopped without the split, resumed with it, verified at each step, scored."""
  whole, parts = tmp_path / "whole", tmp_path / "parts"
  assert program.run(whole, *WORDS)
  ends.copy_as_stopped(whole, parts, step=2)
  assert program.run(parts, *WORDS, *SPLIT)
  text = (parts / "parameters.txt").read_text()
  assert re.search(r"MlpBlock_3/Dense_0/kernel .*\(None, 'fsdp', 'model'\)", text)
  one, other = (checkpoint.load_params(checkpoint.find(x), ema=True) for x in (whole, parts))
  chex.assert_trees_all_close(one, other, rtol=1e-4, atol=1e-5)
  one, other = (metrics_log.read_lines(run)[-1]["test/loss"] for run in (whole, parts))
  assert one == pytest.approx(other, rel=1e-4)


@pytest.mark.parametrize(
  ("words", "message"),
  [
    (("mesh.model=4",), r"mesh\.model=4 does not divide .* the 2 of .*; give one of 1, 2\."),
    (("mesh.model=2", "model.mlp_dim=9"), r"such as the 9 of .*; give one of 1\."),
    (("mesh.model=2", *RESNET), r"mesh\.model=2 splits none of the parameters"),
  ],
)
def test_what_cannot_be_split_is_refused_before_the_data_is_opened(words, message, tmp_path):
  missing = ("data.train.source=folder:missing", "batch_size=32")
  with pytest.raises(c.ConfigError, match=message):
    program.run(tmp_path, *(f"--config.{word}" for word in (*missing, *words)))
