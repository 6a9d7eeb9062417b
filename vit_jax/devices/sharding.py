"""How parameters and optimizer states are split over the axes "fsdp" and "model" of a mesh.

A rule is a regular expression for the whole name of a parameter, and the mesh axes that its last
dimensions are split over, None for a dimension that the rule leaves open. The first rule that
matches counts. If it does not name "fsdp", and the array has at least `MIN_SHARDED_SIZE` elements,
the longest open dimension that fsdp divides is split over it. A rule without axes is `LARGEST`.
"""

import math
import re
from collections.abc import Mapping, Sequence

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from vit_jax.config import ConfigError
from vit_jax.devices.mesh import divisors
from vit_jax.storage.tree import flatten

# A parameter with fewer elements is not split over fsdp: gathering it would cost more time than the
# memory is worth.
MIN_SHARDED_SIZE = 2**14
AXES = ("fsdp", "model")

Axes = tuple[str | None, ...]
Rules = Sequence[tuple[str, Axes]]

LARGEST: Axes = ()
ALL_LARGEST: Rules = ((".*", LARGEST),)


def shardings(mesh: Mesh, state, params: dict, rules: Rules = ALL_LARGEST):
  """The sharding of every array of a state: parameters, moments, averages and everything else.

  If an array's name ends with the name of a parameter of the same shape, it is split like that
  parameter; other arrays are split by `LARGEST`.

  Args:
    mesh: the devices.
    state: a tree of anything with a shape.
    params: the parameters, as arrays or as shapes.
    rules: the rules for the parameters.

  Raises:
    ConfigError: as `check`, or a rule does not fit its parameter.
  """
  sizes = {axis: mesh.shape[axis] for axis in AXES}
  shapes = {name: x.shape for name, x in flatten(params).items()}
  check(shapes, rules, sizes["model"])
  specs = {n: spec(n, shape, axes_of(n, shape, rules), sizes) for n, shape in shapes.items()}

  def sharding(path, x) -> NamedSharding:
    keys = [jax.tree_util.keystr((key,), simple=True) for key in path]
    for first in range(len(keys)):
      ending = "/".join(keys[first:])
      if shapes.get(ending) == x.shape:
        return NamedSharding(mesh, specs[ending])
    return NamedSharding(mesh, spec("/".join(keys), x.shape, LARGEST, sizes))

  return jax.tree_util.tree_map_with_path(sharding, state)


def check(shapes: Mapping[str, tuple[int, ...]], rules: Rules, model: int):
  """Checks that parameters can be split over `model` devices along that axis.

  Raises:
    ConfigError: as `axes_of`, or config.mesh.model does not divide a dimension that is split over
      it, or splits nothing.
  """
  split = {}
  for name, shape in shapes.items():
    axes = axes_of(name, shape, rules)
    if "model" in axes:
      split[name] = shape[axes.index("model") - len(axes)]
  common = math.gcd(*split.values())
  if model > 1 and not split:
    raise ConfigError(
      f"config.mesh.model={model} splits none of the parameters of this model; give "
      "config.mesh.model=1, and config.mesh.fsdp to split them."
    )
  if model > 1 and common % model:
    name, size = next((name, size) for name, size in split.items() if size % model)
    raise ConfigError(
      f"config.mesh.model={model} does not divide what is split over it, such as the {size} of "
      f"{name} {shapes[name]}; give one of {', '.join(map(str, divisors(common)))}."
    )


def axes_of(name: str, shape: tuple[int, ...], rules: Rules) -> Axes:
  """The axes for a parameter, by the first rule that matches its name.

  Raises:
    ConfigError: no rule matches, or the rule names more dimensions than the parameter has, an axis
      that is not in `AXES`, or an axis twice.
  """
  axes = next((axes for pattern, axes in rules if re.fullmatch(pattern, name)), None)
  if axes is None:
    raise ConfigError(
      f"no sharding rule matches the parameter {name}; the last rule of a model is "
      '(".*", LARGEST) (vit_jax/devices/sharding.py).'
    )
  named = [axis for axis in axes if axis is not None]
  if len(axes) > len(shape) or {*named} - {*AXES} or len({*named}) < len(named):
    raise ConfigError(
      f"a sharding rule gives the axes {axes} to the parameter {name} of shape {shape}; a rule "
      f"names at most its dimensions, each by {' or '.join(AXES)}, once, or None."
    )
  return axes


def spec(name: str, shape: tuple[int, ...], axes: Axes, sizes: Mapping[str, int]) -> P:
  """How an array is split.

  Args:
    name: the name of the array.
    shape: the shape of the array.
    axes: the axes of its rule, as `axes_of` returns them.
    sizes: {axis of the mesh: devices along it}.

  Raises:
    ConfigError: the devices along an axis do not divide the dimension that the rule gives them.
  """
  named = [None] * (len(shape) - len(axes)) + list(axes)
  named = [axis if sizes.get(axis, 1) > 1 else None for axis in named]
  for dimension, axis in enumerate(named):
    if axis and shape[dimension] % sizes[axis]:
      raise ConfigError(
        f"config.mesh.{axis}={sizes[axis]} does not divide dimension {dimension} of {name}, whose "
        f"shape is {shape}; give a divisor of {shape[dimension]}."
      )
  free = [d for d, axis in enumerate(named) if axis is None and shape[d] % sizes["fsdp"] == 0]
  if sizes["fsdp"] > 1 and "fsdp" not in axes and math.prod(shape) >= MIN_SHARDED_SIZE and free:
    named[max(free, key=lambda dimension: shape[dimension])] = "fsdp"
  if not any(named):
    return P()
  return P(*named)


def unsplit(arrays: Mapping[str, jax.ShapeDtypeStruct], fsdp: int) -> list[str]:
  """Names of the arrays that are large enough to be split over fsdp, and are not.

  Args:
    arrays: {name: anything with a shape and a sharding}.
    fsdp: devices along that axis.
  """
  if fsdp <= 1:
    return []
  large = {n: x for n, x in arrays.items() if math.prod(x.shape) >= MIN_SHARDED_SIZE}
  return [name for name, x in large.items() if "fsdp" not in x.sharding.spec]


def holders(mesh: Mesh, spec: P) -> np.ndarray:
  """For each device, the index of the first device that holds the same share of an array.

  Args:
    mesh: the devices.
    spec: how the array is split.

  Returns:
    (devices,) integers, indices in the order of the mesh.
  """
  used = set()
  for axes in spec:
    if isinstance(axes, str):
      used.add(axes)
    elif axes:
      used.update(axes)
  indices = np.arange(mesh.size).reshape(mesh.devices.shape)
  first = indices[tuple(slice(None) if axis in used else slice(1) for axis in mesh.axis_names)]
  return np.broadcast_to(first, indices.shape).ravel()


def parameter_table(arrays: dict) -> str:
  """A table of how every array is split, and the bytes on each device.

  Args:
    arrays: {name: anything with a shape, a dtype and a sharding}.
  """
  from clu import parameter_overview  # needed once a run

  overview = parameter_overview.get_parameter_overview(arrays, include_stats="sharding")
  return f"{overview}\nOn each device: {bytes_per_device(arrays):,} bytes\n"


def bytes_per_device(tree) -> int:
  """The bytes on each device of a tree of arrays, or of their shapes with shardings."""

  def size(x):
    return math.prod(x.sharding.shard_shape(x.shape)) * x.dtype.itemsize

  return sum(map(size, jax.tree.leaves(tree)))
