"""Weights as msgpack: other files are refused."""

import flax.serialization
import numpy as np
import pytest

from tests.weights import families
from vit_jax import weights


@pytest.mark.parametrize(
  "data",
  [
    b"",
    b"\xff" * 100,
    b"not weights",
    flax.serialization.msgpack_serialize([1, 2]),
    flax.serialization.msgpack_serialize({"a": "text"}),
    flax.serialization.msgpack_serialize({}),
    flax.serialization.msgpack_serialize({"a": np.ones(3, np.float32)}) + b"\0",
    flax.serialization.msgpack_serialize({"a": 1j}),
    flax.serialization.msgpack_serialize({"a": np.float32(1)}),
  ],
)
def test_other_files_are_refused(tmp_path, data):
  path = tmp_path / "p.msgpack"
  path.write_bytes(data)
  with pytest.raises(ValueError, match=r"p\.msgpack"):
    weights.load(path)


def test_large_arrays_that_flax_takes_apart(tmp_path, monkeypatch):
  monkeypatch.setattr(flax.serialization, "MAX_CHUNK_SIZE", 64)
  params = {"a": {"b": np.arange(60, dtype=np.float32).reshape(3, 20)}}
  weights.save(tmp_path / "p.msgpack", params)
  assert b"__msgpack_chunked_array__" in (tmp_path / "p.msgpack").read_bytes()
  families.assert_same_bits(weights.load(tmp_path / "p.msgpack"), params)
