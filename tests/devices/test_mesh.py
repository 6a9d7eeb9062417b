"""Meshes over eight simulated devices, and how arrays are split over them."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import PartitionSpec as P

from vit_jax import config as c
from vit_jax.devices import mesh as meshes


def make(data=c.AUTO, fsdp=1, batch_size=16, accumulation=1):
  mesh = c.Mesh(data=data, fsdp=fsdp)
  return meshes.make(mesh, batch_size=batch_size, accumulation=accumulation)


@pytest.mark.parametrize(
  ("data", "fsdp", "shape"),
  [(c.AUTO, 1, (8, 1)), (c.AUTO, 4, (2, 4)), (1, 8, (1, 8)), (4, 2, (4, 2))],
)
def test_shapes(data, fsdp, shape):
  mesh = make(data, fsdp)
  assert (mesh.shape["data"], mesh.shape["fsdp"]) == shape


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    (dict(fsdp=3), r"fsdp=3 does not match the 8 devices.*\[1, 2, 4, 8\]"),
    (dict(data=4), r"data=4 x fsdp=1"),
    (dict(fsdp=16), r"fsdp=16"),
    (dict(batch_size=20), r"batch_size=20.*8 devices.*nearest: 16, 24"),
    (dict(batch_size=4), r"batch_size=4 .*nearest: 8\."),
    (dict(batch_size=24, accumulation=2), r"accumulation=2; nearest: 16, 32"),
  ],
)
def test_impossible_meshes(arguments, message):
  with pytest.raises(c.ConfigError, match=message):
    make(**arguments)


def test_a_batch_is_split_evenly_and_in_order():
  sharding = meshes.batch_sharding(make(fsdp=2))
  x = jax.device_put(np.arange(16), sharding)
  assert [shard.data.tolist() for shard in x.addressable_shards] == [
    [2 * i, 2 * i + 1] for i in range(8)
  ]
  assert meshes.host_rows(make(fsdp=2), 16) == (0, 1)


def test_parameters_are_split_along_their_longest_divisible_axis():
  assert meshes.parameter_spec((768, 12, 64), 4) == P("fsdp", None, None)
  assert meshes.parameter_spec((24, 1024, 4096), 8) == P(None, None, "fsdp")
  assert meshes.parameter_spec((1, 197, 768), 8) == P(None, None, "fsdp")
  assert meshes.parameter_spec((768, 1001), 8) == P("fsdp", None)


@given(st.lists(st.integers(1, 500), max_size=4), st.sampled_from([1, 2, 4, 8]))
def test_no_axis_is_split_unevenly(shape, fsdp):
  spec = meshes.parameter_spec(tuple(shape), fsdp)
  split = [size for size, axis in zip(shape, spec, strict=False) if axis]
  assert len(split) <= 1
  assert all(size % fsdp == 0 for size in split)
  if fsdp == 1 or np.prod(shape) < meshes.MIN_SHARDED_SIZE:
    assert not split


def test_large_parameters_that_cannot_be_split_are_named():
  shapes = {"kernel": (130, 130), "wide": (130, 132), "bias": (130,), "deep": (3, 90, 90)}
  arrays = {name: jax.ShapeDtypeStruct(shape, np.float32) for name, shape in shapes.items()}
  assert meshes.kept_whole(arrays, 4) == ["kernel", "deep"]
  assert meshes.kept_whole(arrays, 2) == []
  assert meshes.kept_whole(arrays, 1) == []


def test_table_of_shardings():
  mesh = make(fsdp=4)
  shapes = {"kernel": (64, 1024), "bias": (64,)}
  arrays = {name: jax.ShapeDtypeStruct(shape, np.float32) for name, shape in shapes.items()}
  shardings = meshes.state_shardings(mesh, arrays)
  split = {
    name: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=shardings[name])
    for name, x in arrays.items()
  }
  *lines, total, each = meshes.table(split).splitlines()
  cells = [[field.strip() for field in line.split("|")[1:-1]] for line in lines if "|" in line]
  assert cells[1:] == [
    ["bias", "(64,)", "float32", "64", "()"],
    ["kernel", "(64, 1024)", "float32", "65,536", "(None, 'fsdp')"],
  ]
  assert total == "Total: 65,600 -- 262,400 bytes"
  assert each == "On each device: 65,792 bytes"  # a quarter of the kernel, and the bias
