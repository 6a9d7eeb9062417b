"""Loads models from every source of weights."""

import dataclasses
import functools
import operator

import jax
import numpy as np
import pytest

from tests.weights import families
from vit_jax import models, weights
from vit_jax.config import ConfigError, Model
from vit_jax.inference import export, load
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


def test_how_to_say_that_positions_are_fixed(tmp_path, caplog):
  """An export, with one word of its card changed, is read by every command."""
  weights.save(tmp_path / "w.npz", families.params("none"))
  model = read_model(tmp_path / "w.npz")
  assert 'OTHER.npz and change "positions" in OTHER.npz.json to "sincos2d"' in caplog.text
  export.write(model, "w.npz", tmp_path / "other.npz")
  place = tmp_path / "other.npz.json"
  text = place.read_text()
  assert text.count('"positions": "none"') == 1
  place.write_text(text.replace('"positions": "none"', '"positions": "sincos2d"'))
  caplog.clear()
  assert read_model(tmp_path / "other.npz").module == families.module("none", positions="sincos2d")
  assert not caplog.text


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


def test_parameters_that_replace_others_stay_at_another_size(tiny_run):
  """Such as those that somebody has trained further."""
  model = load(tiny_run)
  mine = dataclasses.replace(model, params=jax.tree.map(lambda x: x + 1, model.params))
  families.assert_same_bits(mine.at_size().params, mine.params)
  kernel = mine.at_size(32).params["head"]["kernel"]
  np.testing.assert_array_equal(kernel, mine.params["head"]["kernel"])


def test_parameters_cannot_be_changed_in_place():
  """The change would be without effect once a copy is on the device."""
  given = families.params("vit")
  model = of_weights(Weights(given, CARD))
  for each in (model, model.at_size(32), dataclasses.replace(model, params=given)):
    for array in jax.tree.leaves(each.params):
      with pytest.raises(ValueError, match="read-only"):
        array += 1
  jax.tree.map(lambda array: array.fill(0), given)  # what was given stays as it is
  assert not model.params["head"]["kernel"].any()  # and is not copied


@pytest.mark.parametrize("head", [True, False])
def test_a_loaded_model_is_written_whole(tmp_path, head):
  params = {key: part for key, part in families.params("vit").items() if head or key != "head"}
  known = dataclasses.replace(CARD, resampling="pillow_bicubic", position_resizing="bicubic")
  known = dataclasses.replace(known, class_names=(), representation="patches", projection=head)
  weights.write(tmp_path / "w.npz", Weights(params, known))
  model = load(tmp_path / "w.npz")
  weights.write(tmp_path / "copy.npz", model.read)
  copy = load(tmp_path / "copy.npz")
  assert (copy.card, copy.module, copy.has_head) == (model.card, model.module, head)
  families.assert_same_bits(copy.read.params, params)


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
  with pytest.raises(ValueError, match=r"size of their images; give image_size \(--image-size\)"):
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


UNKNOWN = "do not belong to a known model"
POSITIONS, NORM = "Transformer/posembed_input", "Transformer/encoder_norm"


@pytest.mark.parametrize(
  ("family", "path", "given", "message"),
  [
    *((name, "head", shape, UNKNOWN) for name in ("vit", "bit") for shape in [(), (5,), (3, 5)]),
    *(("vit", "Transformer", shape, UNKNOWN) for shape in [(), (5,), (3, 5)]),
    *(("bit", "resnet", shape, UNKNOWN) for shape in [(), (5,), (3, 5)]),
    ("vit", "head/bias", (3,), "head"),
    ("vit", "head/bias", None, "head"),
    ("vit", "head/kernel", (31, 5), "head"),
    ("vit", "head/kernel", (32, 4), "head"),
    ("vit", "head/kernel", (), UNKNOWN),
    ("vit", POSITIONS, (1,), UNKNOWN),
    ("vit", POSITIONS, (32,), UNKNOWN),
    ("vit", f"{POSITIONS}/pos_embedding", (), UNKNOWN),
    ("vit", f"{POSITIONS}/pos_embedding", (2, 17, 32), r"must be \(1, 17, 32\)"),
    ("2d", f"{POSITIONS}/pos_embedding_row", (), UNKNOWN),
    ("2d", f"{POSITIONS}/pos_embedding_row", (32,), r"_row is \(32,\) and must be"),
    ("vit", "Transformer/encoderblock_0", (32,), UNKNOWN),
    ("vit", "embedding/kernel", (32,), UNKNOWN),
    ("vit", "embedding/kernel", (4, 4, 3, 1), "2 heads do not divide the width 1"),
    ("no head", NORM, (1,), "encoder_norm/scale"),
    ("no head", NORM, (32,), "encoder_norm/scale"),
    ("no head", f"{NORM}/scale", (1, 32), "encoder_norm/scale"),
    ("no head", NORM, None, "encoder_norm/scale"),
    ("bit", "resnet/root_block", (3,), UNKNOWN),
    ("bit", "resnet/block1/unit01/a/proj", (3,), "is not part of the model"),
  ],
)
def test_arrays_that_are_missing_or_of_another_layout(family, path, given, message):
  params = families.params("vit" if family == "no head" else family)
  if family == "no head":
    del params["head"]
  *parents, last = path.split("/")
  node = functools.reduce(operator.getitem, parents, params)
  if given is None:
    del node[last]
  else:
    node[last] = np.ones(given, np.float32)
  with pytest.raises(ValueError, match=message):
    of_weights(Weights(params, None)).at_size(16)


def test_a_file_with_an_array_where_several_belong_is_named(tmp_path):
  params = families.params("vit") | {"head": np.ones(5, np.float32)}
  np.savez(tmp_path / "w.npz", **flatten(params))
  card.write(tmp_path / "w.npz.json", CARD)
  with pytest.raises(ValueError, match=rf"w\.npz is not a model of this project: .* {UNKNOWN}"):
    read_model(tmp_path / "w.npz")


def test_nothing_is_there(tmp_path, monkeypatch):
  """The home folder may be a tilde."""
  monkeypatch.setenv("HOME", str(tmp_path))
  np.savez(tmp_path / "w.npz", **flatten(families.params("vit")))
  assert load("~/w.npz").has_head
  with pytest.raises(ConfigError, match=r"none\.npz does not exist"):
    read_model(tmp_path / "none.npz")
