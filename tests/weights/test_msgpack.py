"""Weights as msgpack: the same bits back, and strangers' files refused."""

import flax.serialization
import jax
import numpy as np
import pytest

from vit_jax import models, weights
from vit_jax.models.stacking import stack_blocks


def tree(scan=False):
  model = models.create("ViT-Ti/4", depth=2, width=8, mlp_dim=16, heads=2, num_classes=3, scan=scan)
  images = np.zeros((1, 8, 8, 3), np.float32)
  return model.init(jax.random.key(0), images, train=False)["params"]


def assert_same_bits(a, b):
  flat_a, tree_a = jax.tree.flatten(a)
  flat_b, tree_b = jax.tree.flatten(b)
  assert tree_a == tree_b
  for x, y in zip(flat_a, flat_b, strict=True):
    assert x.dtype == y.dtype
    assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


def test_the_same_bits_come_back(tmp_path):
  params = tree()
  weights.save(tmp_path / "p.msgpack", params)
  assert_same_bits(weights.load(tmp_path / "p.msgpack"), params)


def test_stacked_blocks_are_stored_apart(tmp_path):
  params = tree()
  weights.save(tmp_path / "p.msgpack", stack_blocks(params))
  assert_same_bits(weights.load(tmp_path / "p.msgpack"), params)


def test_bfloat16_and_not_a_number_survive(tmp_path):
  import ml_dtypes

  params = {"a": np.array([1, np.nan, -0.0], ml_dtypes.bfloat16), "b": np.float32([np.nan, np.inf])}
  weights.save(tmp_path / "p.msgpack", params)
  assert_same_bits(weights.load(tmp_path / "p.msgpack"), params)


def test_unknown_suffixes_list_the_known_ones(tmp_path):
  with pytest.raises(ValueError, match=r"'\.pt'.*known: \.msgpack"):
    weights.save(tmp_path / "p.pt", tree())
  with pytest.raises(ValueError, match=r"'\.pt'"):
    weights.load(tmp_path / "p.pt")


@pytest.mark.parametrize(
  "data",
  [
    b"",
    b"\xff" * 100,
    b"not weights",
    flax.serialization.msgpack_serialize([1, 2]),
    flax.serialization.msgpack_serialize({"a": "text"}),
    flax.serialization.msgpack_serialize({}),
  ],
)
def test_other_files_are_refused(tmp_path, data):
  path = tmp_path / "p.msgpack"
  path.write_bytes(data)
  with pytest.raises(ValueError, match=r"p\.msgpack"):
    weights.load(path)


def test_every_truncation_is_refused(tmp_path):
  path = tmp_path / "p.msgpack"
  weights.save(path, {"a": np.arange(5.0), "b": {"c": np.ones((2, 3))}})
  whole = path.read_bytes()
  for length in range(len(whole)):
    path.write_bytes(whole[:length])
    with pytest.raises(ValueError, match=r"p\.msgpack"):
      weights.load(path)
