"""Weights as msgpack: strangers' files refused."""

import flax.serialization
import pytest

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
  ],
)
def test_other_files_are_refused(tmp_path, data):
  path = tmp_path / "p.msgpack"
  path.write_bytes(data)
  with pytest.raises(ValueError, match=r"p\.msgpack"):
    weights.load(path)
