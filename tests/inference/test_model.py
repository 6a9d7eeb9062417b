"""Loads models from every source of weights."""

import dataclasses

import jax
import numpy as np
import pytest

from tests.weights import families
from vit_jax import models, weights
from vit_jax.config import ConfigError, Model
from vit_jax.inference import load
from vit_jax.inference.model import of_weights, read_model
from vit_jax.storage import checkpoint
from vit_jax.storage.tree import flatten
from vit_jax.weights import Weights, card
from vit_jax.weights.card import Card

CARD = Card(image_size=16, resize=20, class_names=tuple("abcde"), loss="sigmoid")


def test_the_card_tells_what_parameters_do_not(tmp_path):
  known = dataclasses.replace(CARD, model=Model(activation="gelu", norm_epsilon=1e-3))
  weights.write(tmp_path / "w.npz", Weights(families.params("vit"), known))
  model = load(tmp_path / "w.npz")
  assert model.module == families.module("vit", activation="gelu", norm_epsilon=1e-3)
  assert model.card == dataclasses.replace(known, model=models.settings_of(model.module))
  families.assert_same_bits(model.params, families.params("vit"))


def test_a_workdir_and_its_checkpoint_have_the_average_unless_told_otherwise(tiny_run):
  folder = checkpoint.find(tiny_run)
  stored = [checkpoint.load_params(folder, ema=ema) for ema in (False, True)]
  for source in (tiny_run, str(tiny_run), folder):
    model = load(source)
    assert model.card.average
    families.assert_same_bits(model.params, stored[1])
  raw = load(tiny_run, average=False)
  assert not raw.card.average
  families.assert_same_bits(raw.params, stored[0])
  assert not np.array_equal(raw.params["head"]["kernel"], stored[1]["head"]["kernel"])
  assert model.card.class_names == tuple("0123456789")


def test_a_model_is_shown_in_four_lines(tiny_run):
  whole = load(tiny_run)
  counted = sum(array.size for array in jax.tree.leaves(whole.params))
  assert repr(whole).splitlines() == [
    "model:      ViT-Ti/4 depth=1 width=8 mlp_dim=16 heads=2, images of 16 x 16 pixels",
    f"parameters: {counted:,}",
    "classes:    10: '0', '1', '2', '3', '4' and 5 more",
    f"source:     {tiny_run}",
  ]
  params = {name: part for name, part in families.params("vit").items() if name != "head"}
  bare = of_weights(Weights(params, None))
  assert repr(bare).splitlines()[2:] == [
    "classes:    none",
    "source:     parameters that were given",
  ]


def test_another_image_size(tmp_path):
  weights.write(tmp_path / "w.npz", Weights(families.params("vit"), CARD))
  model = load(tmp_path / "w.npz", 32)
  assert (model.card.image_size, model.card.resize) == (32, 40)  # as large a share is cut out
  table = model.params["Transformer"]["posembed_input"]["pos_embedding"]
  assert table.shape == (1, 65, 32)
  assert [row.what for row in model.rows].count("resized") == 1
  logits, _ = model.module.apply(
    {"params": model.params}, np.zeros((1, 32, 32, 3), np.float32), train=False
  )
  assert logits.shape == (1, 5)
  with pytest.raises(ValueError, match="cannot be cut into patches"):
    load(tmp_path / "w.npz", 18)


def test_what_tells_no_size_is_read_all_the_same():
  model = of_weights(Weights(families.params("bit"), None))
  assert model.card.image_size == 0
  with pytest.raises(ValueError, match="do not tell the size of their images; give it"):
    model.at_size()
  families.assert_same_bits(model.at_size(32).params, families.params("bit"))


@pytest.mark.parametrize("family", ["vit", "bit"])
def test_weights_without_a_head_have_one_of_zeros(family):
  params = families.params(family)
  assert of_weights(Weights(params, CARD)).has_head
  bare = {name: part for name, part in params.items() if name != "head"}
  model = of_weights(Weights(bare, None))
  assert not model.has_head
  assert model.module.num_classes == 1
  assert not model.params["head"]["kernel"].any()


@pytest.mark.parametrize(
  ("array", "shape"), [("bias", (3,)), ("bias", None), ("kernel", (31, 5)), ("kernel", (32, 4))]
)
def test_a_head_whose_parameters_do_not_fit_together(tmp_path, array, shape):
  params = families.params("vit")
  if shape:
    params["head"][array] = np.zeros(shape, np.float32)
  else:
    del params["head"][array]
  np.savez(tmp_path / "w.npz", **flatten(params))
  with pytest.raises(ValueError, match="head"):
    load(tmp_path / "w.npz")


def test_the_home_folder_may_be_a_tilde(tmp_path, monkeypatch):
  monkeypatch.setenv("HOME", str(tmp_path))
  np.savez(tmp_path / "w.npz", **flatten(families.params("vit")))
  assert load("~/w.npz").has_head


UNKNOWN = "do not belong to a known model"


@pytest.mark.parametrize("shape", [(), (5,), (3, 5)])
@pytest.mark.parametrize(
  ("family", "name"), [("vit", "head"), ("vit", "Transformer"), ("bit", "head"), ("bit", "resnet")]
)
def test_an_array_where_several_belong(tmp_path, family, name, shape):
  params = families.params(family) | {name: np.ones(shape, np.float32)}
  np.savez(tmp_path / "w.npz", **flatten(params))
  card.write(tmp_path / "w.npz.json", CARD)
  with pytest.raises(ValueError, match=rf"w\.npz is not a model of this project: .* {UNKNOWN}"):
    read_model(tmp_path / "w.npz")


@pytest.mark.parametrize("norm", [{}, {"scale": (1, 32)}, (1,), (32,)])
def test_the_last_norm_of_weights_without_a_head(norm):
  params = families.params("vit")
  del params["head"]
  params["Transformer"]["encoder_norm"] = jax.tree.map(
    np.ones, norm, is_leaf=lambda x: type(x) is tuple
  )
  with pytest.raises(ValueError, match=r"do not fit the model .*encoder_norm/scale"):
    of_weights(Weights(params, None)).at_size(16)


@pytest.mark.parametrize(
  ("family", "path", "shape", "message"),
  [
    ("vit", "Transformer/posembed_input", (1,), UNKNOWN),
    ("vit", "Transformer/posembed_input", (32,), UNKNOWN),
    ("vit", "Transformer/posembed_input/pos_embedding", (), UNKNOWN),
    ("2d", "Transformer/posembed_input/pos_embedding_row", (), UNKNOWN),
    ("2d", "Transformer/posembed_input/pos_embedding_row", (32,), r"_row is \(32,\) and must be"),
    ("vit", "Transformer/encoderblock_0", (32,), UNKNOWN),
    ("vit", "embedding/kernel", (32,), UNKNOWN),
    ("vit", "embedding/kernel", (4, 4, 3, 1), "2 heads do not divide the width 1"),
    ("vit", "Transformer/posembed_input/pos_embedding", (2, 17, 32), r"must be \(1, 17, 32\)"),
    ("vit", "head/kernel", (), UNKNOWN),
    ("bit", "resnet/root_block", (3,), UNKNOWN),
    ("bit", "resnet/block1/unit01/a/proj", (3,), "is not part of the model"),
  ],
)
def test_arrays_of_another_layout(family, path, shape, message):
  params = families.params(family)
  *parents, last = path.split("/")
  node = params
  for parent in parents:
    node = node[parent]
  node[last] = np.ones(shape, np.float32)
  with pytest.raises(ValueError, match=message):
    of_weights(Weights(params, None)).at_size(16)


def test_nothing_is_there(tmp_path):
  with pytest.raises(ConfigError, match=r"none\.npz does not exist"):
    read_model(tmp_path / "none.npz")
