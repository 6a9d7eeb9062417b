"""Checksums of the arrays on each device, and which devices hold other bits than the rest.

A table of checksums has the axes (results, arrays, devices): the same arrays from several
computations, on each device in the order of the mesh. A second array, `first` (arrays, devices),
tells which devices are replicas and must hold the same bits: those with the same first holder
(`vit_jax.devices.mesh.holders`).
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from vit_jax.devices import mesh as meshes


def checksum(x: jax.Array) -> jax.Array:
  """A uint32 scalar: the sum over all elements of a hash of their bits and position, modulo 2^32.

  Integers have the same sum in any order. The hash (the last steps of MurmurHash3) is one-to-one in
  the bits of an element, so a change in one element is always seen. A change in several elements is
  missed with a probability of 2^-32.
  """
  hashed = _bits(x) ^ (_positions(x.shape) * np.uint32(0x9E3779B9))
  for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
    hashed = (hashed ^ (hashed >> np.uint32(shift))) * np.uint32(factor)
  return jnp.sum(hashed ^ (hashed >> np.uint32(16)), dtype=jnp.uint32)


def _bits(x):
  whole = jnp.dtype(f"uint{8 * x.dtype.itemsize}")
  return jax.lax.bitcast_convert_type(x, whole).astype(jnp.uint32)


def _positions(shape):
  """The flat index of each element, modulo 2^32; computed by axis, so that nothing is reshaped."""
  result = jnp.zeros(shape, jnp.uint32)
  for axis in range(len(shape)):
    stride = np.uint32(math.prod(shape[axis + 1 :]) % 2**32)
    result += jax.lax.broadcasted_iota(jnp.uint32, shape, axis) * stride
  return result


def of_tree(tree) -> jax.Array:
  """The checksum of every array of a tree, (arrays,)."""
  return jnp.stack([checksum(x) for x in jax.tree.leaves(tree)])


def by_device(mesh: Mesh, specs):
  """The compiled function from a tree of arrays to the checksums of each device's share.

  Args:
    mesh: the devices.
    specs: how the arrays are split, a tree or a prefix of it.

  Returns:
    A function from the tree to uint32 (arrays, devices), which every process can read.
  """

  def of_device(tree):
    return of_tree(tree)[:, None]

  def of_devices(tree):
    split = P(None, mesh.axis_names)
    mapped = jax.shard_map(
      of_device, mesh=mesh, in_specs=(specs,), out_specs=split, check_vma=False
    )
    return mapped(tree)

  return jax.jit(of_devices, out_shardings=meshes.replicated(mesh))


def differing(table: np.ndarray, first: np.ndarray) -> np.ndarray:
  """Which arrays do not have the same bits in all results and replicas, (arrays,) bool."""
  of_first = np.take_along_axis(table[0], first, axis=1)
  return (table != of_first).any((0, 2))


def minority(values: np.ndarray) -> np.ndarray:
  """Which devices ever differ from the majority value; none if no value has a majority.

  Args:
    values: (tries, devices).

  Returns:
    (devices,) bool.
  """
  found, counts = np.unique(values, return_counts=True)
  if 2 * counts.max() <= values.size:
    return np.zeros(values.shape[1], bool)
  return (values != found[counts.argmax()]).any(0)


def outvoted(table: np.ndarray, first: np.ndarray) -> np.ndarray:
  """Which devices hold other bits of any array than the majority of its replicas and results.

  Returns:
    (devices,) bool; none if the results differ alike on all replicas.
  """
  found = np.zeros(table.shape[2], bool)
  for array in np.flatnonzero(differing(table, first)):
    for holder in np.unique(first[array]):
      replicas = first[array] == holder
      found[replicas] |= minority(table[:, array, replicas])
  return found
