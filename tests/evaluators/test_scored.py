"""Which parameters are scored, and which are refused in one sentence."""

import dataclasses
import pathlib

import numpy as np
import pytest

from tests.weights import families
from vit_jax import config as c
from vit_jax import plan, weights
from vit_jax.data import sources
from vit_jax.evaluators import scored
from vit_jax.models.stacking import unstack_blocks
from vit_jax.tree import flatten
from vit_jax.weights.card import Card

MODEL = c.Model(name="ViT-B/4", depth=2, width=32, mlp_dim=64, heads=2)
NOWHERE = pathlib.Path("/none-such")


def saved(tmp_path, params, name="w.npz", names=()):
  weights.write(tmp_path / name, weights.Weights(params, Card(image_size=16, class_names=names)))
  return str(tmp_path / name)


def data(classes=0):
  """A set of images with as many classes; 0: no set."""
  source = sources.open_source("synthetic", split="", num_classes=classes or 1)
  return plan.Data(train=None, evaluate={"set": source} if classes else {})


def read(path, classes=0, **model):
  config = c.Config(
    init_from=path,
    model=dataclasses.replace(MODEL, **model),
    data=c.Data(image_size=16, evaluate={"set": c.Dataset("synthetic")}),
  )
  return scored.read(config, data(classes), NOWHERE)


@pytest.mark.parametrize("scan", [False, True])
@pytest.mark.parametrize("family", ["vit", "representation"])
def test_parameters_are_those_of_the_file(tmp_path, family, scan):
  """The head and the representation layer are told by the weights, not by the config."""
  path = saved(tmp_path, families.params(family))
  for classes in (0, 5):
    result = read(path, classes, scan=scan)
    families.assert_same_bits(unstack_blocks(result.params), families.params(family))
    assert result.config.model.num_classes == 5
    assert result.config.model.representation_layer == (family == "representation")
    assert result.origin == {"weights": path}


def test_position_embeddings_are_resized(tmp_path):
  path = saved(tmp_path, families.params("vit"))
  config = c.Config(init_from=path, model=MODEL, data=c.Data(image_size=24))
  table = scored.read(config, data(), NOWHERE).params["Transformer"]["posembed_input"]
  assert table["pos_embedding"].shape == (1, 37, 32)


def test_weights_without_a_head_do_for_features_alone(tmp_path):
  params = families.params("vit")
  del params["head"]
  np.savez(tmp_path / "w.npz", **flatten(params))
  path = str(tmp_path / "w.npz")
  assert read(path).params["head"]["kernel"].shape == (32, 1)
  with pytest.raises(c.ConfigError, match="these weights have no head, so"):
    read(path, 5)


@pytest.mark.parametrize(
  ("family", "model", "message"),
  [
    ("vit", dict(name="ViT-B/8"), r"not of a ViT-B/8 .*: patch is 4 there and 8 here;"),
    ("vit", dict(depth=3), r"depth is 2 there and 3 here"),
    ("gap", {}, r"pool is gap there and class_token here"),
    ("2d", {}, r"positions is 2d there and 1d here"),
    ("bit", {}, r"they are a ResNet there and a ViT here;"),
    ("hybrid", {}, r"stages is \(2, 1, 1\) there and None here"),
  ],
)
def test_another_model(tmp_path, family, model, message):
  path = saved(tmp_path, families.params(family))
  with pytest.raises(c.ConfigError, match=rf"config\.init_from={path}: these weights.*{message}"):
    read(path, 5, **model)


def test_other_classes(tmp_path):
  path = saved(tmp_path, families.params("vit"))
  with pytest.raises(c.ConfigError, match=r"head .* has 5 classes, but .*set \(synthetic\) has 9"):
    read(path, 9)
  path = saved(tmp_path, families.params("vit"), "named.npz", names=("0", "1", "2", "x", "4"))
  with pytest.raises(c.ConfigError, match=r"class 3 is '3' there and 'x' in .*named\.npz"):
    read(path, 5)


def test_nothing_to_score(tmp_path):
  with pytest.raises(c.ConfigError, match=r"such has no checkpoint .*--config\.init_from=PATH"):
    read("", 5)
  with pytest.raises(c.ConfigError, match=r"config\.init_from=.*gone\.npz does not exist"):
    read(str(tmp_path / "gone.npz"), 5)
