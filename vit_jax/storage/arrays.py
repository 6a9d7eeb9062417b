"""The arrays of a checkpoint, by TensorStore: Zarr in an OCDBT database, laid out as Orbax does.

FOLDER/ocdbt.process_N is the database of process N: the shares of arrays that it wrote. FOLDER
itself is the database of all, which refers to the bytes in the others; `merge` makes it.
"""

import collections
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np
import tensorstore as ts

OF_PROCESS = "ocdbt.process_"  # the folder of each process's database
METADATA = "_METADATA"  # Orbax's file, by which its tools read the arrays
AT_ONCE = 2**28  # bytes of arrays that are encoded or read at once
# Bytes of a part of an array; of a larger one, the devices that hold it write a piece each.
SPLIT = 2**24
FILE = 2**28  # bytes of a file of encoded arrays, before the next one is begun
_TRIES = {"max_retries": 5, "initial_delay": "200ms", "max_delay": "2s"}  # of requests to buckets


class Share(NamedTuple):
  """What one process writes of an array: pieces of the host's memory, by their places in it."""

  shape: tuple[int, ...]
  dtype: np.dtype
  chunk: tuple[int, ...]
  pieces: list[tuple[tuple[slice, ...], np.ndarray]]

  @property
  def nbytes(self) -> int:
    """Bytes of the pieces."""
    return sum(piece.nbytes for _, piece in self.pieces)


class Plan(NamedTuple):
  """How the devices that hold the same part of an array share the writing of it.

  Attributes:
    chunk: shape of what one device writes.
    axis: along which the part is cut.
    parts: how many devices write a piece of it.
    first: number of the first piece among those of all arrays.
  """

  chunk: tuple[int, ...]
  axis: int
  parts: int
  first: int


def plans(arrays: Mapping[str, jax.Array]) -> dict[str, Plan]:
  """How each array is written; the same on every process.

  Raises:
    ValueError: two arrays would have one key.
  """
  if len({_key(name) for name in arrays}) < len(arrays):
    raise ValueError("Two arrays have names that differ in a slash and a dot alone; rename one.")
  found, first = {}, 0
  for name in sorted(arrays, key=lambda name: (-arrays[name].nbytes, name)):
    shape = arrays[name].sharding.shard_shape(arrays[name].shape)
    axis = int(np.argmax(shape)) if shape else 0
    large = np.prod(shape) * arrays[name].dtype.itemsize > SPLIT
    ways = range(_copies(arrays[name]), 0, -1) if large else [1]
    parts = next(count for count in ways if count == 1 or shape[axis] % count == 0)
    chunk = tuple(size // parts if i == axis else size for i, size in enumerate(shape))
    found[name], first = Plan(chunk, axis, parts, first), first + parts
  return found


def shares(arrays: Mapping[str, jax.Array], plans: Mapping[str, Plan]) -> dict[str, Share]:
  """What this process writes of the arrays that all hold; they may be donated once it returns.

  Each piece is written by one of the devices that hold it. They take turns, those of another
  process each time, so that all processes write about as much.
  """
  found = {}
  for names in _groups({name: arrays[name].nbytes for name in plans}):  # pieces need memory too
    mine = {name: list(_mine(arrays[name], plans[name])) for name in names}
    for pieces in mine.values():
      for _, piece in pieces:
        piece.copy_to_host_async()
    for name, pieces in mine.items():
      if pieces:
        values = [(index, np.asarray(piece)) for index, piece in pieces]
        found[name] = Share(arrays[name].shape, arrays[name].dtype, plans[name].chunk, values)
  return found


def _mine(array: jax.Array, plan: Plan) -> Iterator[tuple[tuple[slice, ...], jax.Array]]:
  """The pieces that the devices of this process write of an array, and where they lie in it."""
  order = _in_turn(_copies(array), jax.process_count())
  writers = {order[(plan.first + part) % len(order)]: part for part in range(plan.parts)}
  for shard in array.addressable_shards:
    if shard.replica_id not in writers:
      continue
    if plan.parts == 1:
      yield shard.index, shard.data
      continue
    size = plan.chunk[plan.axis]
    start = writers[shard.replica_id] * size
    index = list(shard.index)
    begin = (index[plan.axis].start or 0) + start
    index[plan.axis] = slice(begin, begin + size)
    yield tuple(index), jax.lax.slice_in_dim(shard.data, start, start + size, axis=plan.axis)


def _copies(array: jax.Array) -> int:
  """How many devices hold each part of an array."""
  part = int(np.prod(array.sharding.shard_shape(array.shape)))
  return max(len(array.sharding.device_set) * part // max(array.size, 1), 1)


def _in_turn(copies: int, processes: int) -> list[int]:
  """The numbers of copies in the order in which they write: each of another process than the last.

  Copies are numbered by device, and devices by process.
  """
  if copies % processes:
    return list(range(copies))
  each = copies // processes
  return [process * each + device for device in range(each) for process in range(processes)]


def write(place: dict, process: int, mine: dict[str, Share]):
  """Writes the shares of a process into its database; `mine` is empty afterwards.

  Args:
    place: the folder of the arrays, as `base.Storage.kvstore` describes it.
    process: the number of the process.
    mine: of `shares`.

  Raises:
    ValueError: TensorStore's errors; nothing is being written any longer.
  """
  asked, database = context(), _new_database(_below(place, f"{OF_PROCESS}{process}/"))
  for names in _groups({name: share.nbytes for name, share in mine.items()}):
    group = {name: mine.pop(name) for name in names}
    with ts.Transaction() as transaction:
      opened = [
        ts.open(_new(database, name, share), context=asked, transaction=transaction)
        for name, share in group.items()
      ]
      written = [
        store.result()[index].write(piece)
        for store, share in zip(opened, group.values(), strict=True)
        for index, piece in share.pieces
      ]
      for piece in written:
        piece.result()


def merge(place: dict, processes: int, wanted: Mapping[str, tuple[Sequence[int], Sequence[int]]]):
  """Makes one database of those of all processes, and the file by which Orbax reads it.

  Args:
    place: as for `write`.
    processes: their number.
    wanted: shape and chunk of every array, which must be there in whole.

  Raises:
    ValueError: as `write`, or an array is not there in whole.
  """
  asked = context()
  whole = ts.KvStore.open(_new_database(place), context=asked).result()
  with ts.Transaction() as transaction:
    for process in range(processes):
      base = _below(place, f"{OF_PROCESS}{process}/")
      part = ts.KvStore.open(_database(base), context=asked).result()
      part.experimental_copy_range_to(whole.with_transaction(transaction)).result()
  found = collections.Counter(key.decode().rpartition("/")[0] for key in whole.list().result())
  for name, (shape, chunk) in wanted.items():
    chunks = math.prod(-(-size // max(part, 1)) for size, part in zip(shape, chunk, strict=True))
    if found[_key(name)] != chunks + 1:  # and what describes it
      raise ValueError(
        f"Of {name}, {max(found[_key(name)] - 1, 0)} of {chunks} parts were written."
      )
  folder = ts.KvStore.open(place, context=asked).result()
  described = _metadata({name: shape for name, (shape, _) in wanted.items()})
  folder.write(METADATA, json.dumps(described)).result()


def read_arrays(place: dict, wanted: Mapping[str, jax.ShapeDtypeStruct]) -> dict[str, jax.Array]:
  """Arrays with the shardings that `wanted` gives; each process reads what its devices hold.

  Raises:
    ValueError: TensorStore's errors: an array is not there, in whole, or has another shape or type.
  """
  asked, database, found = context(), _database(place), {}
  for names in _groups({name: _bytes(wanted[name]) for name in wanted}):
    opened = {name: ts.open(_known(database, name, wanted[name]), context=asked) for name in names}
    begun = {name: _begin(_checked(store.result()), wanted[name]) for name, store in opened.items()}
    found |= {name: _placed(wanted[name], begun.pop(name)) for name in names}
  return found


def read_here(place: dict, wanted: Mapping[str, jax.ShapeDtypeStruct]) -> dict[str, np.ndarray]:
  """Whole arrays, in the memory of this machine.

  Raises:
    ValueError: as `read_arrays`.
  """
  asked, database = context(), _database(place)
  opened = {name: ts.open(_known(database, name, wanted[name]), context=asked) for name in wanted}
  begun = {name: _checked(store.result()).read() for name, store in opened.items()}
  return {name: values.result() for name, values in begun.items()}


def _checked(store):
  """An opened array whose parts are no larger than itself: each is taken into memory whole."""
  part = store.chunk_layout.read_chunk.shape or ()  # None of a scalar
  if any(size > max(most, 1) for size, most in zip(part, store.shape, strict=True)):
    raise ValueError(f"A part of {part} is larger than the array, {store.shape}.")
  return store


def _begin(store, wanted) -> dict:
  """By the part of an array, what reads it; by each device of this process, its part."""
  parts = wanted.sharding.addressable_devices_indices_map(wanted.shape)
  reads = {
    str(index): store[index].read() for index in {str(i): i for i in parts.values()}.values()
  }
  return {device: reads[str(index)] for device, index in parts.items()}


def _placed(wanted, begun: dict) -> jax.Array:
  pieces = [
    jax.device_put(values.result(), device, may_alias=False) for device, values in begun.items()
  ]
  return jax.make_array_from_single_device_arrays(wanted.shape, wanted.sharding, pieces)


def _bytes(wanted) -> int:
  """Of a whole array: parts are read whole that were written by one device of other ones."""
  return math.prod(wanted.shape) * wanted.dtype.itemsize


def _groups(sizes: Mapping[str, int]) -> Iterator[list[str]]:
  """The names, in groups of at most `AT_ONCE` bytes, or of one array that has more."""
  group, total = [], 0
  for name, size in sizes.items():
    if group and total + size > AT_ONCE:
      yield group
      group, total = [], 0
    group.append(name)
    total += size
  if group:
    yield group


def context() -> ts.Context:
  """How TensorStore asks: a bucket that does not answer is given up after some seconds."""
  indices = {"total_bytes_limit": 10**8}
  return ts.Context(
    {"gcs_request_retries": _TRIES, "s3_request_retries": _TRIES, "cache_pool": indices}
  )


def _below(place: dict, name: str) -> dict:
  return {**place, "path": place["path"] + name}


def _new_database(base: dict) -> dict:
  """An OCDBT database to write to; the values of small arrays lie in its index."""
  config = {
    "max_inline_value_bytes": 1024,
    "max_decoded_node_bytes": 10**8,
    "manifest_kind": "single",
  }
  written = {"config": config, "assume_config": True, "target_data_file_size": FILE}
  return _database(base) | written


def _database(base: dict) -> dict:
  """An OCDBT database; one request reads what lies side by side."""
  return {
    "driver": "ocdbt",
    "base": base,
    "experimental_read_coalescing_threshold_bytes": 2**20,
    "experimental_read_coalescing_merged_bytes": AT_ONCE,
    "experimental_read_coalescing_interval": "1ms",
  }


def _new(database: dict, name: str, share: Share) -> dict:
  """An array that is made, or that another share of it has made."""
  metadata = {
    "shape": share.shape,
    "chunks": [max(size, 1) for size in share.chunk],
    "compressor": {"id": "zstd", "level": 1},
  }
  written = {"metadata": metadata, "store_data_equal_to_fill_value": True}
  return _array(database, name, share.dtype) | written | {"create": True, "open": True}


def _known(database: dict, name: str, wanted) -> dict:
  """An array that is there; what is missing of it is an error, and not zeros."""
  shape = {"shape": list(wanted.shape)}
  return _array(database, name, wanted.dtype) | {
    "metadata": shape,
    "fill_missing_data_reads": False,
    "open": True,
  }


def _array(database: dict, name: str, dtype) -> dict:
  store = {**database, "path": f"{_key(name)}/"}
  return {"driver": "zarr", "kvstore": store, "dtype": np.dtype(dtype).name}


def _key(name: str) -> str:
  return name.replace("/", ".")


def _metadata(shapes: Mapping[str, Sequence[int]]) -> dict:
  """The tree of the arrays, in Orbax's words; a key of type 2 is one of a dictionary."""
  tree = {}
  for name, shape in shapes.items():
    keys = tuple(name.split("/"))
    tree[str(keys)] = {
      "key_metadata": [{"key": key, "key_type": 2} for key in keys],
      "value_metadata": {
        "value_type": "np.ndarray",
        "skip_deserialize": False,
        "write_shape": list(shape),
      },
    }
  return {
    "tree_metadata": tree,
    "use_ocdbt": True,
    "use_zarr3": False,
    "store_array_data_equal_to_fill_value": True,
    "custom_metadata": None,
  }
