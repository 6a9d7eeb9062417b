"""Published files: their names, and other spellings of them."""

import jax
import numpy as np
import pytest

from tests.golden import weights as golden
from tests.weights import families
from tests.weights.families import assert_same_bits
from vit_jax import weights
from vit_jax.models.recognition import module_of
from vit_jax.models.stacking import stack_blocks
from vit_jax.storage.tree import flatten


def read(tmp_path, flat):
  np.savez(tmp_path / "w.npz", **flat)
  return weights.load(tmp_path / "w.npz")


@pytest.mark.parametrize("name", ["vit", "vit_gap", "hybrid", "bit"])
def test_published_npz_gives_the_logits_of_an_independent_implementation(tmp_path, name):
  record = golden.golden(name)
  params = read(tmp_path, golden.make(record["shapes"]))
  images = golden.images(record["image_size"])
  module = module_of(params)
  logits, _ = jax.jit(lambda p: module.apply({"params": p}, images, train=False))(params)
  np.testing.assert_allclose(logits, record["logits"], atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", ["vit", "hybrid", "bit"])
def test_npz_is_written_in_the_published_names(tmp_path, name):
  arrays = golden.make(golden.golden(name)["shapes"])
  weights.save(tmp_path / "ours.npz", read(tmp_path, arrays))
  for key, x in arrays.items():  # some files have (1, 1, 1, C); all readers take (C,)
    arrays[key] = (
      x.reshape(-1) if x.shape[:3] == (1, 1, 1) and key.endswith(("scale", "bias")) else x
    )
  with np.load(tmp_path / "ours.npz") as ours:
    assert_same_bits(dict(sorted(ours.items())), dict(sorted(arrays.items())))


@pytest.mark.parametrize("prefix", ["opt/target/", "params/", "params/img/"])
def test_prefixes(tmp_path, prefix):
  params = families.params("representation")
  flat = {prefix + name: x for name, x in flatten(params).items()}
  if prefix == "opt/target/":
    flat["opt/state/step"] = np.int64(7)
    flat["opt/state/param_states/cls/momentum"] = np.zeros(3, np.float32)
  if prefix == "params/img/":
    flat |= {"params/txt/head/bias": np.zeros(3, np.float32), "params/t": np.float32(1)}
  flat |= {"chrono/accum_train_time": np.float64(9.5), "chrono/accum_examples_seen": np.int64(5)}
  if prefix.startswith("params/"):
    flat["opt/0/mu/cls"] = np.zeros(3, np.float32)
  assert_same_bits(read(tmp_path, flat), params)


@pytest.mark.parametrize("stacked", [False, True])
def test_linen_names(tmp_path, stacked):
  params = families.params("map")
  flat = flatten(stack_blocks(params) if stacked else params)

  def linen(name):
    if "encoderblock" in name:
      name = name.replace("MultiHeadDotProductAttention_1", "MultiHeadDotProductAttention_0")
      name = name.replace("LayerNorm_2", "LayerNorm_1").replace("MlpBlock_3", "MlpBlock_0")
    return name

  assert_same_bits(read(tmp_path, {linen(k): v for k, v in flat.items()}), params)


def test_position_embeddings_at_the_top(tmp_path):
  """big_vision adds them to the patches only."""
  params = families.params("vit")
  flat = flatten(params)
  table = flat.pop("Transformer/posembed_input/pos_embedding")
  params = read(tmp_path, flat | {"pos_embedding": table[:, 1:]})
  got = params["Transformer"]["posembed_input"]["pos_embedding"]
  assert not got[:, 0].any()
  np.testing.assert_array_equal(got[:, 1:], table[:, 1:])
  gap = families.params("gap")
  flat = flatten(gap)
  flat["pos_embedding"] = flat.pop("Transformer/posembed_input/pos_embedding")
  assert_same_bits(read(tmp_path, flat), gap)


@pytest.mark.parametrize("family", ["hybrid", "bit"])
def test_group_norms_of_four_axes(tmp_path, family):
  params = families.params(family)
  flat = flatten(params)
  for name, x in flat.items():
    if ("gn" in name or "group_norm" in name) and x.ndim == 1:
      flat[name] = x[None, None, None]
  assert_same_bits(read(tmp_path, flat), params)


def test_numbered_convolutions(tmp_path):
  arrays = golden.make(golden.golden("bit")["shapes"])
  numbered = {
    name.replace("standardized_conv2d", f"standardized_conv2d_{i}"): x
    for i, (name, x) in enumerate(arrays.items())
  }
  np.savez(tmp_path / "plain.npz", **arrays)
  assert_same_bits(read(tmp_path, numbered), weights.load(tmp_path / "plain.npz"))


@pytest.mark.parametrize(
  ("prefix", "first", "second", "message"),
  [
    ("params/", "cls", "extra", r"w\.npz .*begin with params/ and others.*extra"),
    (
      "",
      "Transformer/posembed_input/pos_embedding",
      "pos_embedding",
      "two arrays mean Transformer/posembed_input",
    ),
    (
      "",
      "resnet/root_block/standardized_conv2d/kernel",
      "resnet/root_block/standardized_conv2d_7/kernel",
      "two arrays mean resnet/root_block/standardized_conv2d/kernel",
    ),
  ],
)
def test_names_that_contradict_each_other(tmp_path, prefix, first, second, message):
  params = families.params("bit" if "resnet" in first else "vit")
  flat = {prefix + name: x for name, x in flatten(params).items()}
  flat[second] = flat[prefix + first]
  with pytest.raises(ValueError, match=message):
    read(tmp_path, flat)
