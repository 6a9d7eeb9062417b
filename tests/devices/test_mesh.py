"""Meshes over eight simulated devices, and how arrays are split over them."""

import jax
import numpy as np
import pytest

from vit_jax import config as c
from vit_jax.devices import mesh as meshes


def make(data=c.AUTO, fsdp=1, model=1, batch_size=16, accumulation=1):
  mesh = c.Mesh(data=data, fsdp=fsdp, model=model)
  return meshes.make(mesh, batch_size=batch_size, accumulation=accumulation)


@pytest.mark.parametrize(
  ("data", "fsdp", "shape"),
  [(c.AUTO, 1, (8, 1)), (c.AUTO, 4, (2, 4)), (1, 8, (1, 8)), (4, 2, (4, 2))],
)
def test_shapes(data, fsdp, shape):
  mesh = make(data, fsdp)
  assert (mesh.shape["data"], mesh.shape["fsdp"]) == shape
  assert mesh.shape["model"] == 1


@pytest.mark.parametrize(("fsdp", "model"), [(2, 1), (2, 2)])
def test_a_batch_is_split_evenly_and_in_order(fsdp, model):
  """Devices along "model" have the same rows."""
  mesh = make(fsdp=fsdp, model=model)
  assert dict(mesh.shape) == dict(data=8 // fsdp // model, fsdp=fsdp, model=model)
  assert meshes.groups(mesh) == 8 // model
  x = jax.device_put(np.arange(16), meshes.batch_sharding(mesh))
  found = [shard.data.tolist() for shard in x.addressable_shards]
  each = 2 * model
  rows = [[*range(first, first + each)] for first in range(0, 16, each)]
  assert found == [group for group in rows for _ in range(model)]
  assert meshes.host_rows(mesh, 16) == (0, 1)


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    (dict(fsdp=3), r"fsdp=3 x model=1 does not match the 8 devices.*\[1, 2, 4, 8\]"),
    (dict(fsdp=2, model=3), r"fsdp=2 x model=3 does not match the 8 devices.*"),
    (dict(model=2, batch_size=18), r"batch_size=18 .* of config\.mesh\.model=2 .*nearest: 16, 20"),
    (dict(data=4), r"data=4 x fsdp=1"),
    (dict(fsdp=16), r"fsdp=16"),
    (dict(batch_size=20), r"batch_size=20.*8 devices.*nearest: 16, 24"),
    (dict(batch_size=4), r"batch_size=4 .*nearest: 8\."),
    (
      dict(batch_size=24, accumulation=2),
      r"accumulation=2; nearest: 16, 32; with 24, config\.accumulation must be one of \[1, 3\]\.",
    ),
  ],
)
def test_impossible_meshes(arguments, message):
  with pytest.raises(c.ConfigError, match=message):
    make(**arguments)


class Device:
  """Stands for a device of one of several hosts."""

  def __init__(self, number, of_host):
    self.id, self.process_index = number, number // of_host


def test_replicas_across_hosts_are_refused():
  devices = [Device(number, of_host=4) for number in range(16)]
  split = dict(batch_size=16, accumulation=1, devices=devices)
  assert meshes.make(c.Mesh(fsdp=2, model=4), **split).shape["data"] == 2
  with pytest.raises(
    c.ConfigError, match=r"config\.mesh\.model=8.*of one process, and each has 4.*a divisor of 4"
  ):
    meshes.make(c.Mesh(fsdp=2, model=8), **split)
