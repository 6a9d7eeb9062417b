"""Simulated devices that compute wrongly: bits of one device's arrays that flip."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np


def checksum(x) -> int:
  """The checksum of vit_jax/extras/verification/checksums.py, by whole numbers in NumPy."""
  bits = np.ravel(x).view(f"uint{8 * x.dtype.itemsize}").astype(np.uint64)
  h = bits ^ np.arange(x.size, dtype=np.uint64) * np.uint64(0x9E3779B9) % 2**32
  for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
    h = (h ^ h >> np.uint64(shift)) * np.uint64(factor) % 2**32
  return int((h ^ h >> np.uint64(16)).sum() % 2**32)


def flipped(x, device, bit):
  """The array, with a bit of its largest element flipped on one device; other replicas stay."""
  shards = []
  for shard in x.addressable_shards:
    data = np.array(shard.data)
    if shard.device == device:
      data.ravel().view(np.uint32)[np.abs(data).argmax()] ^= np.uint32(1 << bit)
    shards.append(jax.device_put(data, shard.device))
  return jax.make_array_from_single_device_arrays(x.shape, x.sharding, shards)


def with_wrong_parameter(state, device, rng, *, lowest=0):
  """The state, with a bit of any parameter, from the lowest one on, flipped on one device."""
  leaves, structure = jax.tree.flatten(state.params)
  number = rng.integers(len(leaves))
  leaves[number] = flipped(leaves[number], device, int(rng.integers(lowest, 31)))
  return dataclasses.replace(state, params=jax.tree.unflatten(structure, leaves))


@dataclasses.dataclass(frozen=True)
class WrongGradients:
  """An objective; batch["fault"], (B,) int32, flips a bit of gradients where it is not 0.

  They are those of an example's first token before the blocks; some are 0, by dropout. A fault is
  `code(device, bit)`, in the rows of that device. If each device computes alone, rows of its own
  are wrong on the device of the code only.
  """

  inner: object

  def __getattr__(self, name):
    return getattr(self.inner, name)

  def loss(self, params, extra, batch, key):
    """As the inner one; the encoder is traced with the fault in it."""
    from vit_jax.models import encoder

    split = encoder.split_by_example
    encoder.split_by_example = lambda x: wrong(split(x), batch["fault"])
    try:
      return self.inner.loss(params, extra, batch, key)
    finally:
      encoder.split_by_example = split


def code(device: int, bit: int) -> int:
  """A fault of a device."""
  return 1 + bit + 32 * device


@jax.custom_vjp
def wrong(x, fault):
  """x, whose gradient is wrong."""
  return x


def _forward(x, fault):
  return x, fault


def _backward(fault, gradient):
  mesh = jax.sharding.get_abstract_mesh()
  if not mesh.empty and mesh.are_all_axes_manual:
    here = jax.lax.axis_index(mesh.axis_names)
    fault = jnp.where((fault - 1) // 32 == here, fault, 0)
  flips = jnp.where(fault > 0, 1 << ((fault - 1) % 32), 0)
  bits = jax.lax.bitcast_convert_type(gradient[:, 0], jnp.int32) ^ flips[:, None]
  first = jax.lax.bitcast_convert_type(bits, jnp.float32)
  return gradient.at[:, 0].set(first), np.zeros(fault.shape, jax.dtypes.float0)


wrong.defvjp(_forward, _backward)
