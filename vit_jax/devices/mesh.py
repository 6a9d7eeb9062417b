"""The device mesh ("data", "fsdp"), and how batches and parameters are split over its axes."""

import functools
import math

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from vit_jax import config as cfg

# A parameter with fewer elements is not split: gathering it would cost more time than the memory is
# worth.
MIN_SHARDED_SIZE = 2**14


def make(config: cfg.Mesh, *, batch_size: int, accumulation: int, devices=None) -> Mesh:
  """The mesh over all devices of all processes, or over `devices`.

  Raises:
    ConfigError: the shape does not match the number of devices, or the batch cannot be split.
  """
  devices = jax.devices() if devices is None else devices
  count = len(devices)
  data = count // config.fsdp if config.data == cfg.AUTO else config.data
  if data * config.fsdp != count:
    raise cfg.ConfigError(
      f"config.mesh: data={config.data} x fsdp={config.fsdp} does not match the {count} devices "
      f"here; fsdp must be one of {divisors(count)}, and data {cfg.AUTO} or devices / fsdp."
    )
  if batch_size % (count * accumulation):
    below = batch_size - batch_size % (count * accumulation)
    raise cfg.ConfigError(
      f"config.batch_size={batch_size} cannot be split over {count} devices and "
      f"config.accumulation={accumulation}; nearest: "
      f"{', '.join(str(b) for b in (below, below + count * accumulation) if b)}."
    )
  # Sorted by process, so that the rows of the batch that a process feeds are consecutive
  # (`host_rows`). jax.make_mesh sorts by the place of chips in the slice, where hosts interleave.
  ordered = sorted(devices, key=lambda device: (device.process_index, device.id))
  grid = np.array(ordered).reshape(data, config.fsdp)
  return Mesh(grid, ("data", "fsdp"), axis_types=(AxisType.Auto,) * 2)


def divisors(number: int) -> list[int]:
  """All divisors of `number`, ascending."""
  return [d for d in range(1, number + 1) if number % d == 0]


def batch_sharding(mesh: Mesh) -> NamedSharding:
  """Examples are split over all devices, along the first axis."""
  return NamedSharding(mesh, P(("data", "fsdp")))


def on(mesh: Mesh, function):
  """Wraps a function so that it is traced with `mesh`, over which models split activations."""

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


def parameter_spec(shape: tuple[int, ...], fsdp: int) -> P:
  """Splits the longest axis that `fsdp` divides; arrays that are small or have none stay whole."""
  splittable = [axis for axis, size in enumerate(shape) if size % fsdp == 0]
  if fsdp == 1 or math.prod(shape) < MIN_SHARDED_SIZE or not splittable:
    return P()
  longest = max(splittable, key=lambda axis: shape[axis])
  return P(*("fsdp" if axis == longest else None for axis in range(len(shape))))


def state_shardings(mesh: Mesh, state):
  """The sharding of every array of a state (parameters, optimizer state, averages).

  It follows from the shape alone, so moments and averages are split as their parameters are.
  """
  fsdp = mesh.shape["fsdp"]
  return jax.tree.map(lambda x: NamedSharding(mesh, parameter_spec(x.shape, fsdp)), state)


def kept_whole(shapes: dict, fsdp: int) -> list[str]:
  """Names of the arrays that are large enough to be split, but have no axis that `fsdp` divides.

  Args:
    shapes: {name: anything with a shape}.
    fsdp: devices that share one copy.
  """
  if fsdp == 1:
    return []
  large = {name: x.shape for name, x in shapes.items() if math.prod(x.shape) >= MIN_SHARDED_SIZE}
  return [name for name, shape in large.items() if parameter_spec(shape, fsdp) == P()]


def table(arrays: dict) -> str:
  """A table of how every array is split, and the bytes that lie on each device.

  Args:
    arrays: {name: anything with a shape, a dtype and a sharding}.
  """
  from clu import parameter_overview  # needed once a run

  overview = parameter_overview.get_parameter_overview(arrays, include_stats="sharding")
  return f"{overview}\nOn each device: {bytes_per_device(arrays):,} bytes\n"


def bytes_per_device(tree) -> int:
  """The bytes of a tree of arrays, or of their shapes with shardings, that lie on each device."""
  size = lambda x: math.prod(x.sharding.shard_shape(x.shape)) * x.dtype.itemsize
  return sum(map(size, jax.tree.leaves(tree)))


def host_rows(mesh: Mesh, batch_size: int) -> tuple[int, int]:
  """Which rows of a global batch this process feeds, as (host, hosts).

  The rows are [host * batch_size / hosts, (host + 1) * batch_size / hosts).
  """
  return rows_of(mesh, batch_size, jax.process_index()), len(processes(mesh))


def rows_of(mesh: Mesh, batch_size: int, process: int) -> int:
  """Which part of a batch, of equal parts, lies on the devices of `process`.

  Raises:
    RunError: the rows are not consecutive, or are not an equal part.
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
