"""Checksums of arrays, and which devices hold other bits than most."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.miscomputing import checksum
from vit_jax.extras.verification import checksums


@pytest.mark.parametrize("dtype", [np.float32, np.int32, jnp.bfloat16])
def test_a_checksum_is_that_of_its_definition(dtype):
  x = np.random.default_rng(0).normal(size=(7, 5, 11)).astype(dtype)
  assert int(jax.jit(checksums.checksum)(x)) == checksum(x)
  assert int(jax.jit(checksums.checksum)(x[0, 0, 0])) == checksum(x[0, 0, 0])


def test_each_bit_and_the_order_count():
  x = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
  changed = [x, x[::-1].copy(), -x]
  for place in range(x.size):
    for bit in range(32):
      other = x.copy()
      other.ravel().view(np.uint32)[place] ^= np.uint32(1 << bit)
      changed.append(other)
  sums = jax.jit(jax.vmap(checksums.checksum))(np.stack(changed))
  assert len(np.unique(sums)) == len(changed)


def table(*changes, data=4, fsdp=2):
  """Checksums of two results of a whole and a split array, and who first holds each share.

  `changes` are pairs of an index (result, array, data, fsdp) and a value.
  """
  found = np.zeros((2, 2, data, fsdp), np.uint32)
  found[:, 1] = range(fsdp)  # each part has its own
  for index, value in changes:
    found[index] = value
  devices = data * fsdp
  return found.reshape(2, 2, devices), np.stack([np.zeros(devices, int), np.arange(devices) % fsdp])


ALL = slice(None)


@pytest.mark.parametrize(
  ("changes", "arrays", "devices"),
  [
    ([], [], []),
    ([((1, 0, 2, 1), 9)], [0], [5]),  # in one result
    ([((ALL, 0, 2, 1), 9)], [0], [5]),  # in both: a replica that was wrong before
    ([((0, 1, 0, 1), 9)], [1], [1]),
    ([((0, 1, 0, 1), 0)], [1], [1]),  # what another part should have
    ([((0, 1, 0, 1), 9), ((1, 0, 3, 0), 9)], [0, 1], [1, 6]),
    ([((1, 0), 9)], [0], []),  # alike on all devices
    ([((1, 1, ALL, 0), 9)], [1], []),  # alike on all that have this part
  ],
)
def test_devices_are_outvoted_by_replicas(changes, arrays, devices):
  found = table(*changes)
  assert np.flatnonzero(checksums.differing(*found)).tolist() == arrays
  assert np.flatnonzero(checksums.outvoted(*found)).tolist() == devices


def test_one_replica_of_two_is_not_in_the_majority():
  assert not checksums.outvoted(*table(((ALL, 0, 0, 0), 9), data=2, fsdp=1)).any()
  assert checksums.outvoted(*table(((0, 0, 0, 0), 9), data=2, fsdp=1)).tolist() == [True, False]
