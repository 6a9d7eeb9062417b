"""Files of weights: every family comes back bit by bit, and its architecture is recognised."""

import dataclasses
import json
import pathlib
import shutil

import jax
import numpy as np
import pytest

import vit_jax
from tests import modules
from tests.weights import families
from tests.weights.families import assert_same_bits
from vit_jax import weights
from vit_jax.config import ConfigError, Model
from vit_jax.models.recognition import module_of, settings_of
from vit_jax.models.stacking import stack_blocks
from vit_jax.storage.tree import flatten
from vit_jax.weights import Weights
from vit_jax.weights import card as cards
from vit_jax.weights.card import Card

IMAGES = families.images()
SUFFIXES = [".npz", ".msgpack", ".safetensors"]


@pytest.mark.parametrize("family", families.FAMILIES)
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_same_bits_come_back(tmp_path, family, suffix):
  params = families.params(family)
  weights.save(tmp_path / f"w{suffix}", params)
  assert_same_bits(weights.load(tmp_path / f"w{suffix}"), params)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_blocks_are_stored_apart_and_every_finite_number_survives(tmp_path, suffix):
  params = families.params("vit")
  tiny, huge = np.finfo(np.float32).smallest_subnormal, np.finfo(np.float32).max
  params["head"] = params["head"] | {"bias": np.float32([tiny, huge, -0.0, 1, 2])}
  weights.save(tmp_path / f"w{suffix}", stack_blocks(params))
  assert_same_bits(weights.load(tmp_path / f"w{suffix}"), params)


@pytest.mark.parametrize("suffix", [*SUFFIXES, ""])
def test_how_images_and_positions_are_resized_comes_back(tmp_path, suffix):
  names = tuple("abcde")
  card = Card(
    image_size=16,
    resize=20,
    squeeze=True,
    resampling="torchvision_bicubic",
    position_resizing="bicubic_antialiased",
    class_names=names,
  )
  weights.write(tmp_path / f"w{suffix}", Weights(families.params("vit"), card))
  read = weights.read(tmp_path / f"w{suffix}").card
  assert dataclasses.replace(read, model=card.model) == card


def test_a_card_of_0_2_0_is_of_a_classifier_and_guesses_nothing(tmp_path):
  card = Card(image_size=16, resampling="pillow_bicubic", model=Model(activation="gelu"))
  path = tmp_path / "w.npz.json"
  cards.write(path, card)
  values = json.loads(path.read_text())
  del values["projection"], values["guessed"], values["model_guessed"]
  path.write_text(json.dumps(values))
  assert cards.read_beside(tmp_path / "w.npz") == card


def in_type(params, kind):
  return jax.tree.map(lambda x: x.astype(kind), params)


@pytest.mark.parametrize("family", ["map", "2d", "relative", "root_hybrid", "axial_resnet"])
def test_parameters_of_half_precision_are_computed_with_in_float32(family):
  half = in_type(families.params(family), np.float16)
  for kernel in (x for name, x in flatten(half).items() if "conv" in name and x.ndim == 4):
    kernel[..., 0] = 0.5  # of variance 0, beside which float16 has no 1e-10

  def outputs(params):
    logits, features = families.module(family).apply({"params": params}, IMAGES, train=False)
    return [logits, *features.values()]

  for computed, expected in zip(outputs(half), outputs(in_type(half, np.float32)), strict=True):
    assert np.isfinite(expected).all()
    np.testing.assert_array_equal(computed, expected)


NAMED = Card(image_size=16, class_names=tuple("abcde"))
OTHER = dataclasses.replace(NAMED, loss="sigmoid")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_file_has_a_card_of_its_own(tmp_path, suffix):
  params, path = families.params("vit"), tmp_path / f"m{suffix}"
  for other in SUFFIXES:
    weights.write(tmp_path / f"m{other}", Weights(params, NAMED))
  weights.write(path, Weights(params, OTHER))
  cards = {other: weights.read(tmp_path / f"m{other}").card for other in SUFFIXES}
  assert cards == dict.fromkeys(SUFFIXES, NAMED) | {suffix: OTHER}


def test_a_card_inside_counts_more_than_one_beside(tmp_path):
  """Such as that of older weights of this name, which the file was copied over."""
  path, known = (
    tmp_path / "m.safetensors",
    dataclasses.replace(OTHER, model=Model(activation="gelu")),
  )
  weights.write(tmp_path / "new.safetensors", Weights(families.params("vit"), known))
  weights.write(path, Weights(families.params("vit"), NAMED))
  (tmp_path / "new.safetensors").rename(path)
  assert weights.read(path).card == known


@pytest.mark.parametrize(
  ("settings", "message"),
  [
    ({"image_size": float("inf")}, "image_size is inf"),
    ({"image_size": 10**9}, "image_size is 1000000000 and must be a number from 0 to 4,096"),
    ({"image_size": "16"}, "image_size is '16'"),
    ({"resize": 8}, "resize is 8, below its image_size"),
    ({"resize": -1}, "resize is -1 and must be a number from 0 to 8,192"),
    ({"class_names": [1, 2, 3, 4, 5]}, "class_names is .* and must be a list of texts"),
    ({"class_names": ["a"]}, "names 1 classes; the head of the weights has 5"),
    ({"loss": "mse"}, "loss is 'mse'"),
    ({"model": {"activation": "relu"}}, "model.activation='relu' is not a choice"),
    ({"model": {"norm_epsilon": 0.5}}, "model.norm_epsilon=0.5 is too large"),
    ({"model": {"family": "of bandits"}}, "model.family='of bandits' is not a choice"),
    ({"model": {"windows": 3}}, "model.windows is not a setting"),
    ({"model": {"name": "ViT-B/16"}}, "model.name is no part of an architecture"),
    ({"model": {"dropout": 0.5}}, "model.dropout is no part of an architecture"),
    ({"model": 3}, "model=3 is one value"),
    ({"pixels": "BGR"}, "pixels is 'BGR'"),
    ({"representation": "x"}, "representation is 'x'"),
    ({"average": 1}, "average is 1 and must be true or false"),
    ({"projection": None}, "projection is None and must be true or false"),
    ({"trained_on": 3}, "trained_on is not a list"),
  ],
)
def test_cards_with_impossible_values_are_refused(tmp_path, settings, message):
  weights.write(tmp_path / "w.npz", Weights(families.params("vit"), NAMED))
  values = json.loads((tmp_path / "w.npz.json").read_text()) | settings
  (tmp_path / "w.npz.json").write_text(json.dumps(values))
  with pytest.raises(ValueError, match=message):
    weights.read(tmp_path / "w.npz")


@pytest.mark.parametrize("family", families.FAMILIES)
def test_parameters_tell_their_model(family):
  assert module_of(families.params(family)) == families.module(family)


def test_parameters_of_no_model():
  with pytest.raises(ValueError, match=r"do not belong to a known model.*they hold something"):
    module_of({"something": np.zeros(3)})


@pytest.mark.parametrize(
  ("path", "message"),
  [
    ("w.onnx", r"w\.onnx holds no weights in a known format: .*\.npz, \.msgpack"),
    ("folder", "folder holds no weights in a known format"),
    ("w.npz", r"w\.npz does not exist"),
  ],
)
def test_where_no_weights_are(tmp_path, path, message):
  (tmp_path / "w.onnx").write_bytes(b"x")
  (tmp_path / "folder").mkdir()
  with pytest.raises(ConfigError, match=message):
    weights.load(tmp_path / path)
  assert weights.trained_on(tmp_path / path) == ()
  with pytest.raises(ConfigError, match=r"w\.pt is no name .* written: .*w \(hugg.*w\.npz \(npz"):
    weights.save(tmp_path / "w.pt", families.params("vit"))


def test_paths_may_be_texts(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  params = families.params("vit")
  weights.write("w.npz", weights.Weights(params, Card(image_size=16)))
  families.assert_same_bits(weights.read("w.npz").params, params)
  assert weights.trained_on("w.npz") == ()


@pytest.mark.parametrize("suffix", [".npz", ".msgpack", ".safetensors"])
def test_parameters_with_their_module_are_read_as_that_model(tmp_path, suffix):
  module = families.module("vit", norm_place="after", activation="silu", rotary="axial")
  params = modules.parameters(module, np.zeros((1, 16, 16, 3), np.float32), train=False)
  weights.save(tmp_path / f"w{suffix}", params, module)
  model = vit_jax.load(tmp_path / f"w{suffix}")
  assert model.module == module
  families.assert_same_bits(model.params, params)


class Mine(type(families.module("vit"))):
  """Of no family."""


@pytest.mark.parametrize(
  ("module", "message"),
  [
    (families.module("vit", channels=1), r"channels is 3 in them, and 1 in what"),
    (families.module("bit"), "do not belong to a known model"),
    (Mine(patch=4, depth=2, width=32, mlp_dim=64, heads=2), "Mine is the module of no family"),
  ],
)
def test_parameters_of_another_module_are_not_written(tmp_path, module, message):
  with pytest.raises(ValueError, match=message):
    weights.save(tmp_path / "w.npz", families.params("vit"), module, image_size=16)
  assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_a_size_that_parameters_do_not_tell_is_given(tmp_path, suffix):
  module = families.module("vit", positions="sincos2d")
  params = modules.parameters(module, IMAGES, train=False)
  with pytest.raises(ValueError, match="need the size of its images"):
    weights.save(tmp_path / f"w{suffix}", params, module)
  weights.save(tmp_path / f"w{suffix}", params, module, image_size=16)
  read = weights.read(tmp_path / f"w{suffix}")
  assert read.card.image_size == 16
  families.assert_same_bits(read.params, params)
  with pytest.raises(ValueError, match="image_size is kept with the module; give both"):
    weights.save(tmp_path / f"other{suffix}", params, image_size=16)


@pytest.mark.parametrize(
  ("fields", "lost"),
  [
    (dict(pool="gap", final_norm="pooled"), "norm behind pooling"),
    (dict(attention_norm=True), "norms of heads before their output"),
    (dict(mlp_norm=True), "norms in MLPs"),
    (dict(first_norm="tokens"), "norm before the blocks"),
    (dict(first_norm="patches"), "norm of patches"),
  ],
)
def test_what_timm_does_not_read_of_npz_is_told(fields, lost):
  shapes = families.module("vit", **fields).parameter_shapes(16)
  (note,) = weights.format_to_write(pathlib.Path("w.npz")).notes(shapes, Card(16))
  assert f"drop its {lost} without a warning. For timm, export .safetensors." in note


def test_what_timm_must_be_told_of_safetensors_is_said():
  def notes(family, params, **fields):
    card = Card(16, model=settings_of(families.module(family, **fields)))
    return weights.format_to_write(pathlib.Path("w.safetensors")).notes(params, card)

  params = families.params("vit")
  pixels, heads = notes("vit", params, activation="gelu")
  assert "num_heads=2, beside embed_dim" in heads
  assert len(notes("vit", params, activation="gelu", width=64)) == 1  # as timm's of this width
  assert "pixels must be from -1 to 1" in pixels
  assert "act_layer=gelu_tanh" in notes("vit", params)[1]
  assert "act_layer=quick_gelu" in notes("vit", params, activation="quick_gelu")[1]
  params["Transformer"]["posembed_input"]["pos_embedding"][:, 0] = 0
  assert "no_embed_class=True" in notes("vit", params, activation="gelu")[-1]
  registers = families.params("later")
  assert "no_embed_class=False" in notes("later", registers, activation="gelu")[-1]
  registers["Transformer"]["posembed_input"]["pos_embedding"][:, :4] = 0
  assert "no_embed_class=True" in notes("later", registers, activation="gelu")[-1]
  assert len(notes("bit", families.params("bit"))) == 1


@pytest.mark.parametrize(
  ("fields", "options"),
  [
    (dict(pool="class_token"), ""),  # as timm's VisionTransformer
    (dict(pool="gap_beside_token"), 'global_pool="avg", fc_norm=False'),
    (dict(pool="gap_beside_token", final_norm="pooled"), 'global_pool="avg", fc_norm=True'),
    (dict(pool="class_token", final_norm="pooled"), ""),
    (
      dict(pool="class_token", rotary="dinov3", positions="none"),
      'global_pool="token", use_fc_norm=False',
    ),
    (
      dict(pool="gap_beside_token", rotary="dinov3", positions="none"),
      'global_pool="avg", use_fc_norm=False',
    ),
    (
      dict(pool="gap_beside_token", qkv_bias="no_key", final_norm="pooled"),
      'global_pool="avg", use_fc_norm=True',
    ),
    (dict(pool="class_token", positions="relative_table"), 'global_pool="token", fc_norm=False'),
    (dict(pool="gap"), ""),  # without a class token
  ],
)
def test_how_timm_must_pool_is_told_where_arrays_do_not_tell(fields, options):
  module = families.module("vit", **fields)
  card = Card(16, model=settings_of(module))
  params = modules.parameters(module, IMAGES, train=False)

  def notes(name):
    return weights.format_to_write(pathlib.Path(name)).notes(params, card)

  def told(name):
    return [note.rpartition("give timm ")[2] for note in notes(name) if "global_pool" in note]

  assert sum("num_heads=2" in note for note in notes("w.npz")) == 1
  expected = [f"{options}."] if options else []
  assert told("w.safetensors") == expected
  if "use_fc_norm" not in options:  # timm reads .npz into its VisionTransformer alone
    assert told("w.npz") == (expected if "avg" in options else [])


def test_parameters_alone_are_not_written_where_a_card_would_be_wrong(tmp_path):
  params = families.params("vit")
  weights.write(tmp_path / "w.npz", weights.Weights(params, Card(image_size=16)))
  with pytest.raises(ValueError, match=r'w\.npz\.json" is the card of other weights; delete it'):
    weights.save(tmp_path / "w.npz", params)
  with pytest.raises(ValueError, match=r"Hugging Face.* states how its model computes"):
    weights.save(tmp_path / "folder", params)


def test_a_run_without_checkpoints_is_called_so(tiny_run, tmp_path):
  folder = shutil.copytree(tiny_run, tmp_path / "run")
  shutil.rmtree(folder / "checkpoints")
  with pytest.raises(ConfigError, match="is a run without checkpoints: none has been saved yet"):
    weights.read(folder)
