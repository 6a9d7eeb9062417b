"""How activations lie on the devices: by examples, whatever is done to the parameters."""

import jax
from jax.sharding import PartitionSpec as P


def split_by_example(x: jax.Array) -> jax.Array:
  """x, its first axis split over all devices of the mesh in whose context it is traced.

  Without it, parameters that are split make XLA split activations by features too, and move them
  between devices in every layer, where moving the parameters is less. No mesh: x as it is.
  """
  mesh = jax.sharding.get_abstract_mesh()
  return x if mesh.empty else jax.lax.with_sharding_constraint(x, P(mesh.axis_names))
