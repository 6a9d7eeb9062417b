"""The norm of all numbers in a tree of arrays, also in few kernels."""

import collections
import functools

import jax
import jax.numpy as jnp
import optax

# A kernel of XLA for GPUs has at most 96 arrays. The norm of an update is computed from the
# gradient, the parameter and two moments, for as many parameters as this.
TOGETHER = 12


def global_norm(tree, *, by_shape: bool) -> jax.Array:
  """The square root of the sum of the squares of all numbers in a tree; a float32 scalar.

  By default each array has a sum of its own. `by_shape`: the squares of arrays of one shape are
  added number by number, and then summed, so there are about as many kernels as shapes. Arrays of
  one shape are, but for rare rules, also split alike over the devices, so nothing is moved.
  """
  if not by_shape:
    return optax.tree.norm(tree)
  alike = collections.defaultdict(list)
  for x in jax.tree.leaves(tree):
    alike[x.shape].append(jnp.square(x))
  groups = [
    group[first : first + TOGETHER]
    for group in alike.values()
    for first in range(0, len(group), TOGETHER)
  ]
  return jnp.sqrt(sum(jnp.sum(functools.reduce(jnp.add, group)) for group in groups))
