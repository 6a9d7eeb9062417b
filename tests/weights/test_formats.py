"""Files of weights: every family comes back bit by bit, and its architecture is recognised."""

import dataclasses
import itertools
import json
import shutil

import jax
import ml_dtypes
import numpy as np
import pytest

from tests.golden import weights as golden
from tests.weights import families
from tests.weights.families import assert_same_bits
from vit_jax import weights
from vit_jax.config import ConfigError
from vit_jax.models.recognition import module_of
from vit_jax.models.stacking import stack_blocks
from vit_jax.storage.tree import flatten
from vit_jax.weights import Weights
from vit_jax.weights.card import Card

HALVES = ["float16", ml_dtypes.bfloat16]
IMAGES = families.images()
SUFFIXES = [".npz", ".msgpack", ".safetensors"]


@pytest.mark.parametrize("family", families.FAMILIES)
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_same_bits_come_back(tmp_path, family, suffix):
  params = families.params(family)
  weights.save(tmp_path / f"w{suffix}", params)
  assert_same_bits(weights.load(tmp_path / f"w{suffix}"), params)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_stacked_blocks_are_stored_apart(tmp_path, suffix):
  params = families.params("vit")
  weights.save(tmp_path / f"w{suffix}", stack_blocks(params))
  assert_same_bits(weights.load(tmp_path / f"w{suffix}"), params)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_finite_number_survives(tmp_path, suffix):
  tiny, huge = np.finfo(np.float32).smallest_subnormal, np.finfo(np.float32).max
  params = {"a": np.float32([tiny, huge, -0.0])}
  weights.save(tmp_path / f"w{suffix}", params)
  assert_same_bits(weights.load(tmp_path / f"w{suffix}"), params)


def in_type(params, kind):
  return jax.tree.map(lambda x: x.astype(kind), params)


@pytest.mark.parametrize("kind", HALVES)
@pytest.mark.parametrize(
  ("form", "family"),
  [(".npz", "bit"), (".msgpack", "hybrid"), (".safetensors", "vit"), ("", "vit")],
)
def test_half_precision_becomes_float32(tmp_path, form, family, kind):
  half = in_type(families.params(family), kind)
  weights.save(tmp_path / f"w{form}", half)
  assert_same_bits(weights.load(tmp_path / f"w{form}"), in_type(half, np.float32))


@pytest.mark.parametrize("kind", HALVES)
@pytest.mark.parametrize("family", families.FAMILIES)
def test_parameters_of_half_precision_are_computed_with_in_float32(family, kind):
  half = in_type(families.params(family), kind)
  for kernel in (x for name, x in flatten(half).items() if "conv" in name and x.ndim == 4):
    kernel[..., 0] = 0.5  # of variance 0, beside which float16 has no 1e-10

  def outputs(params):
    logits, features = families.module(family).apply({"params": params}, IMAGES, train=False)
    return [logits, *features.values()]

  for found, wanted in zip(outputs(half), outputs(in_type(half, np.float32)), strict=True):
    assert np.isfinite(wanted).all()
    np.testing.assert_array_equal(found, wanted)


OTHERS = [dict(class_names=tuple("edcba")), dict(image_size=32), dict(loss="sigmoid")]


@pytest.mark.parametrize("changes", OTHERS)
@pytest.mark.parametrize(("first", "second"), [*itertools.permutations(SUFFIXES, 2)])
def test_two_files_of_one_name_have_one_card(tmp_path, first, second, changes):
  params, named = families.params("vit"), Card(image_size=16, class_names=tuple("abcde"))
  other = Weights(params, dataclasses.replace(named, **changes))
  weights.write(tmp_path / f"m{first}", Weights(params, named))
  with pytest.raises(ValueError, match=rf'share the card ".*m\.json" with ".*m{first}", whose'):
    weights.write(tmp_path / f"m{second}", other)
  assert weights.read(tmp_path / f"m{first}").card == named
  assert not (tmp_path / f"m{second}").exists()
  weights.write(tmp_path / f"m{second}", Weights(params, named))  # the same model
  with pytest.raises(ValueError, match="share the card"):
    weights.write(tmp_path / f"m{first}", other)
  (tmp_path / f"m{second}").unlink()
  weights.write(tmp_path / f"m{first}", other)  # a file replaces itself
  assert weights.read(tmp_path / f"m{first}").card == other.card


@pytest.mark.parametrize("changes", OTHERS)
def test_a_file_that_was_copied_over_an_older_one_does_not_get_its_card(tmp_path, changes):
  params, named = families.params("vit"), Card(image_size=16, class_names=tuple("abcde"))
  old, new = tmp_path / "m.safetensors", tmp_path / "new.safetensors"
  weights.write(old, Weights(params, named))
  weights.write(new, Weights(params, dataclasses.replace(named, **changes)))
  new.rename(old)
  for read in (weights.read, weights.trained_on):
    with pytest.raises(ValueError, match=r'm\.safetensors" holds another card than ".*m\.json"'):
      read(old)
  with pytest.raises(ValueError, match="share the card"):
    weights.write(tmp_path / "m.npz", Weights(params, named))
  (tmp_path / "m.json").unlink()
  assert weights.read(old).card == dataclasses.replace(named, **changes)


@pytest.mark.parametrize(
  ("settings", "message"),
  [
    ({"image_size": float("inf")}, "image_size is inf"),
    ({"image_size": 10**9}, "image_size is 1000000000 and must be a number from 0 to 4,096"),
    ({"image_size": "16"}, "image_size is '16'"),
    ({"resize": 8}, "resize is 8 and must be 0, or a number from its image_size 16 to 8,192"),
    ({"resize": -1}, "resize is -1"),
    ({"class_names": "abcde"}, "class_names are not a list of texts"),
    ({"class_names": [1, 2, 3, 4, 5]}, "class_names are not a list of texts"),
  ],
)
def test_cards_with_impossible_values_are_refused(tmp_path, settings, message):
  known = Card(image_size=16, class_names=tuple("abcde"))
  weights.write(tmp_path / "w.npz", weights.Weights(families.params("vit"), known))
  values = json.loads((tmp_path / "w.json").read_text()) | settings
  (tmp_path / "w.json").write_text(json.dumps(values))
  with pytest.raises(ValueError, match=message):
    weights.read(tmp_path / "w.npz")


def test_a_file_without_a_card_gets_no_wrong_one(tmp_path):
  params = families.params("vit")
  weights.save(tmp_path / "m.npz", params)
  np.savez(tmp_path / "data.npz", x=np.ones(3))
  named = Weights(params, Card(image_size=16, class_names=tuple("abcde")))
  with pytest.raises(ValueError, match="share the card"):
    weights.write(tmp_path / "m.msgpack", named)
  weights.write(tmp_path / "m.msgpack", Weights(params, None))
  weights.write(tmp_path / "data.msgpack", named)  # data.npz holds no weights


@pytest.mark.parametrize("family", families.FAMILIES)
def test_parameters_tell_their_model(family):
  told, module = module_of(families.params(family)), families.module(family)
  differing = {
    field.name: (getattr(told, field.name), getattr(module, field.name))
    for field in dataclasses.fields(module)
    if field.name not in ("parent", "name", "stem_width")
    and getattr(told, field.name) != getattr(module, field.name)
  }
  assert not differing


def test_parameters_of_no_model():
  with pytest.raises(ValueError, match=r"do not belong to a known model.*they hold something"):
    module_of({"something": np.zeros(3)})


@pytest.mark.parametrize("name", ["vit", "vit_gap", "hybrid", "bit"])
def test_published_npz_gives_the_logits_of_an_independent_implementation(tmp_path, name):
  record = golden.golden(name)
  np.savez(tmp_path / "w.npz", **golden.make(record["shapes"]))
  params = weights.load(tmp_path / "w.npz")
  images = golden.images(record["image_size"])
  module = module_of(params)
  logits, _ = jax.jit(lambda p: module.apply({"params": p}, images, train=False))(params)
  np.testing.assert_allclose(logits, record["logits"], atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", ["vit", "hybrid", "bit"])
def test_npz_is_written_in_the_published_names(tmp_path, name):
  arrays = golden.make(golden.golden(name)["shapes"])
  np.savez(tmp_path / "theirs.npz", **arrays)
  weights.save(tmp_path / "ours.npz", weights.load(tmp_path / "theirs.npz"))
  for key, x in arrays.items():  # some files have (1, 1, 1, C); all readers take (C,)
    arrays[key] = (
      x.reshape(-1) if x.shape[:3] == (1, 1, 1) and key.endswith(("scale", "bias")) else x
    )
  with np.load(tmp_path / "ours.npz") as ours:
    assert_same_bits(dict(sorted(ours.items())), dict(sorted(arrays.items())))


@pytest.mark.parametrize("path", ["w.pt", "w.bin", "w.h5"])
def test_unknown_suffixes_list_the_known_ones(tmp_path, path):
  with pytest.raises(ValueError, match=r"no format for weights; known: \.npz, \.msgpack"):
    weights.save(tmp_path / path, families.params("vit"))
  (tmp_path / path).write_bytes(b"x")
  with pytest.raises(ValueError, match=r"no format for weights"):
    weights.load(tmp_path / path)


def test_a_path_that_is_not_there(tmp_path):
  with pytest.raises(ConfigError, match=r"w\.npz does not exist"):
    weights.load(tmp_path / "w.npz")
  with pytest.raises(ValueError, match=r"neither a workdir"):
    weights.load(tmp_path)


class TestSpellings:
  """Other names for the same arrays."""

  def read(self, tmp_path, flat):
    np.savez(tmp_path / "w.npz", **flat)
    return weights.load(tmp_path / "w.npz")

  @pytest.mark.parametrize("prefix", ["opt/target/", "params/", "params/img/"])
  def test_prefixes(self, tmp_path, prefix):
    params = families.params("representation")
    flat = {prefix + name: x for name, x in flatten(params).items()}
    if prefix == "opt/target/":
      flat["opt/state/step"] = np.int64(7)
      flat["opt/state/param_states/cls/momentum"] = np.zeros(3, np.float32)
    if prefix == "params/img/":
      flat |= {"params/txt/head/bias": np.zeros(3, np.float32), "params/t": np.float32(1)}
    if prefix.startswith("params/"):
      flat["opt/0/mu/cls"] = np.zeros(3, np.float32)
    assert_same_bits(self.read(tmp_path, flat), params)

  def test_a_name_without_the_others_prefix(self, tmp_path):
    flat = {"params/" + name: x for name, x in flatten(families.params("vit")).items()}
    with pytest.raises(ValueError, match=r"w\.npz .*begin with params/ and others.*extra"):
      self.read(tmp_path, flat | {"extra": np.zeros(1)})

  @pytest.mark.parametrize("stacked", [False, True])
  def test_linen_names(self, tmp_path, stacked):
    params = families.params("map")
    flat = flatten(stack_blocks(params) if stacked else params)

    def linen(name):
      if "encoderblock" in name:
        name = name.replace("MultiHeadDotProductAttention_1", "MultiHeadDotProductAttention_0")
        name = name.replace("LayerNorm_2", "LayerNorm_1").replace("MlpBlock_3", "MlpBlock_0")
      return name

    assert_same_bits(self.read(tmp_path, {linen(k): v for k, v in flat.items()}), params)

  def test_position_embeddings_at_the_top(self, tmp_path):
    """big_vision adds them to the patches only."""
    params = families.params("vit")
    flat = flatten(params)
    table = flat.pop("Transformer/posembed_input/pos_embedding")
    read = self.read(tmp_path, flat | {"pos_embedding": table[:, 1:]})
    got = read["Transformer"]["posembed_input"]["pos_embedding"]
    assert not got[:, 0].any()
    np.testing.assert_array_equal(got[:, 1:], table[:, 1:])
    gap = families.params("gap")
    flat = flatten(gap)
    flat["pos_embedding"] = flat.pop("Transformer/posembed_input/pos_embedding")
    assert_same_bits(self.read(tmp_path, flat), gap)

  def test_position_embeddings_twice(self, tmp_path):
    flat = flatten(families.params("gap"))
    flat["pos_embedding"] = flat["Transformer/posembed_input/pos_embedding"]
    with pytest.raises(ValueError, match=r"two arrays mean Transformer/posembed_input"):
      self.read(tmp_path, flat)

  def test_bfloat16_without_a_name(self, tmp_path):
    flat = flatten(families.params("vit"))
    rounded = {name: x.astype(ml_dtypes.bfloat16) for name, x in flat.items()}
    read = flatten(self.read(tmp_path, {name: x.view("V2") for name, x in rounded.items()}))
    assert_same_bits(read, {name: x.astype(np.float32) for name, x in rounded.items()})

  @pytest.mark.parametrize("family", ["hybrid", "bit"])
  def test_group_norms_of_four_axes(self, tmp_path, family):
    params = families.params(family)
    flat = flatten(params)
    for name, x in flat.items():
      if ("gn" in name or "group_norm" in name) and x.ndim == 1:
        flat[name] = x[None, None, None]
    assert_same_bits(self.read(tmp_path, flat), params)

  def test_numbered_convolutions(self, tmp_path):
    arrays = golden.make(golden.golden("bit")["shapes"])
    numbered = {
      name.replace("standardized_conv2d", f"standardized_conv2d_{i}"): x
      for i, (name, x) in enumerate(arrays.items())
    }
    np.savez(tmp_path / "plain.npz", **arrays)
    assert_same_bits(self.read(tmp_path, numbered), weights.load(tmp_path / "plain.npz"))

  def test_two_names_for_one_parameter(self, tmp_path):
    arrays = golden.make(golden.golden("bit")["shapes"])
    name = "resnet/root_block/standardized_conv2d"
    arrays[f"{name}_7/kernel"] = arrays[f"{name}/kernel"]
    with pytest.raises(ValueError, match=rf"two arrays mean {name}/kernel"):
      self.read(tmp_path, arrays)


def test_a_run_without_checkpoints_is_called_so(tiny_run, tmp_path):
  folder = shutil.copytree(tiny_run, tmp_path / "run")
  shutil.rmtree(folder / "checkpoints")
  with pytest.raises(ConfigError, match="is a run without checkpoints: none has been saved yet"):
    weights.read(folder)
