"""The device mesh ("data", "fsdp", "model"), and how batches are split over its axes."""

import functools
import math

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from vit_jax import config as cfg

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
  unit = data * fsdp * accumulation
  if batch_size % unit:
    below = batch_size - batch_size % unit
    nearest = ", ".join(str(size) for size in (below, below + unit) if size)
    over = f"{count} devices"
    if model > 1:
      over += f" in groups of config.mesh.model={model}"
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
