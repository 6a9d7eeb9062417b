"""The device mesh ("data", "fsdp", "model"): how batches and parameters are split over its axes."""

import functools
import math
import re
from collections.abc import Mapping, Sequence

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from vit_jax import config as cfg
from vit_jax.config import ConfigError
from vit_jax.storage.tree import flatten

ROWS = ("data", "fsdp")  # the axes over which a batch is split


def make(config: cfg.Mesh, *, batch_size: int, accumulation: int, devices=None) -> Mesh:
  """The mesh over all devices of all processes, or over `devices`.

  Raises:
    ConfigError: the shape does not match the number of devices, or the batch cannot be split.
  """
  # Sorted by process, so that the rows of the batch that a process feeds are consecutive
  # (`host_rows`), and the devices along "model" belong to one process. jax.make_mesh sorts by the
  # position of chips in the slice, where hosts interleave.
  if devices is None:
    devices = jax.devices()
  ordered = sorted(devices, key=lambda device: (device.process_index, device.id))
  count = len(devices)
  fsdp = config.fsdp
  model = config.model
  data = config.data
  if data == cfg.AUTO:
    data = count // (fsdp * model)
  if data * fsdp * model != count:
    raise cfg.ConfigError(
      f"config.mesh: data={config.data} x fsdp={fsdp} x model={model} does not match the {count} "
      f"devices here; fsdp x model must be one of {divisors(count)}, and data {cfg.AUTO} or "
      "devices / (fsdp x model)."
    )
  grid = np.array(ordered).reshape(data, fsdp, model)
  if any(len({device.process_index for device in along}) > 1 for along in grid.reshape(-1, model)):
    each = count // len({device.process_index for device in ordered})
    raise cfg.ConfigError(
      f"config.mesh.model={model}: devices that compute the same images must be of one process, "
      f"and each has {each} of them; give a divisor of {each}, or start one process a machine."
    )
  groups = data * fsdp
  unit = groups * accumulation
  if batch_size % unit:
    below = batch_size - batch_size % unit
    nearest = ", ".join(str(size) for size in (below, below + unit) if size)
    over = f"{count} devices"
    if model > 1:
      over += f" in groups of config.mesh.model={model}"
    if batch_size % groups == 0:
      of_this = divisors(batch_size // groups)
      nearest += f"; with {batch_size}, config.accumulation must be one of {of_this}"
    raise cfg.ConfigError(
      f"config.batch_size={batch_size} cannot be split over {over} and "
      f"config.accumulation={accumulation}; nearest: {nearest}."
    )
  return Mesh(grid, (*ROWS, "model"), axis_types=(AxisType.Auto,) * 3)


def groups(mesh: Mesh) -> int:
  """The number of equal shares that a batch is split into."""
  return math.prod(mesh.shape[axis] for axis in ROWS)


def divisors(number: int) -> list[int]:
  """All divisors of `number`, ascending."""
  return [d for d in range(1, number + 1) if number % d == 0]


def batch_sharding(mesh: Mesh) -> NamedSharding:
  """Examples are split along the first axis; devices along "model" have the same ones."""
  return NamedSharding(mesh, P(ROWS))


def on(mesh: Mesh, function):
  """Wraps a function so that it is traced with `mesh`; models split activations over it."""

  @functools.wraps(function)
  def traced(*args, **kwargs):
    with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
      return function(*args, **kwargs)

  return traced


def replicated(mesh: Mesh) -> NamedSharding:
  """A full copy on every device."""
  return NamedSharding(mesh, P())


def place(array: np.ndarray, sharding: NamedSharding) -> jax.Array:
  """Puts an array on the devices; every process has it, and puts its own share there."""
  return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])


def replicate(mesh: Mesh, arrays: dict) -> dict:
  """Puts a full copy of NumPy arrays, which every process has, on every device."""
  with jax.transfer_guard("allow"):  # this transfer is intended, also inside a guarded loop
    return jax.tree.map(lambda array: place(array, replicated(mesh)), arrays)


def host_rows(mesh: Mesh, batch_size: int) -> tuple[int, int]:
  """Which rows of a global batch this process feeds, as (host, hosts).

  The rows are [host * batch_size / hosts, (host + 1) * batch_size / hosts).
  """
  return rows_of(mesh, batch_size, jax.process_index()), len(processes(mesh))


def rows_of(mesh: Mesh, batch_size: int, process: int) -> int:
  """Which of the equal shares of a batch lies on the devices of `process`, as its index.

  Raises:
    RunError: the rows are not consecutive, or are not an equal share.
  """
  indices = batch_sharding(mesh).devices_indices_map((batch_size,))
  mine = [index[0] for device, index in indices.items() if device.process_index == process]
  first = min(rows.start or 0 for rows in mine)
  last = max(batch_size if rows.stop is None else rows.stop for rows in mine)
  share = batch_size // len(processes(mesh))
  if last - first != share or first % share:
    raise cfg.RunError(
      f"Process {process} would feed rows {first} to {last} of {batch_size}, but its equal part is "
      f"{share} rows; every process must have the same number of devices."
    )
  return first // share


def processes(mesh: Mesh) -> set[int]:
  """The processes that have devices of the mesh."""
  return {device.process_index for device in mesh.devices.flat}


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
    ConfigError: as `check_split`, or a rule does not fit its parameter.
  """
  sizes = {axis: mesh.shape[axis] for axis in AXES}
  shapes = {name: x.shape for name, x in flatten(params).items()}
  check_split(shapes, rules, sizes["model"])
  specs = {n: spec(n, shape, axes_of(n, shape, rules), sizes) for n, shape in shapes.items()}

  def sharding(path, x) -> NamedSharding:
    keys = [jax.tree_util.keystr((key,), simple=True) for key in path]
    for first in range(len(keys)):
      ending = "/".join(keys[first:])
      if shapes.get(ending) == x.shape:
        return NamedSharding(mesh, specs[ending])
    return NamedSharding(mesh, spec("/".join(keys), x.shape, LARGEST, sizes))

  return jax.tree_util.tree_map_with_path(sharding, state)


def check_split(shapes: Mapping[str, tuple[int, ...]], rules: Rules, model: int):
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
      '(".*", LARGEST) (vit_jax/devices/mesh.py).'
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
