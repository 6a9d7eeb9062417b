"""Stores the arrays of a checkpoint by TensorStore: Zarr in an OCDBT database, as Orbax does.

FOLDER/ocdbt.process_N is the database of process N, with the shares of arrays that it wrote. FOLDER
itself is the database of all arrays, which refers to the bytes in the others; `merge` makes it.
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
METADATA = "_METADATA"  # Orbax's file, which its tools need to read the arrays
AT_ONCE = 2**28  # bytes of arrays that are encoded or read at once
SPLIT = 2**24  # bytes; the devices that hold copies of a larger shard write a piece each
FILE = 2**28  # bytes of a file of encoded arrays before the next one is begun
_TRIES = {"max_retries": 5, "initial_delay": "200ms", "max_delay": "2s"}  # for buckets


class Share(NamedTuple):
  """The pieces of an array that one process writes, with their indices in the array."""

  shape: tuple[int, ...]
  dtype: np.dtype
  chunk: tuple[int, ...]
  pieces: list[tuple[tuple[slice, ...], np.ndarray]]

  @property
  def nbytes(self) -> int:
    """Bytes of the pieces."""
    return sum(piece.nbytes for _, piece in self.pieces)


class Plan(NamedTuple):
  """How the devices that hold copies of a shard divide it for writing.

  Attributes:
    chunk: shape of the piece that one device writes.
    axis: the axis along which the shard is split.
    parts: number of pieces.
    first: number of the first piece among the pieces of all arrays.
  """

  chunk: tuple[int, ...]
  axis: int
  parts: int
  first: int


def plans(arrays: Mapping[str, jax.Array]) -> dict[str, Plan]:
  """How each array is written; the same on every process.

  Raises:
    ValueError: two arrays would have the same key.
  """
  if len({_key(name) for name in arrays}) < len(arrays):
    raise ValueError("Two arrays have names that differ in a slash and a dot alone; rename one.")
  found = {}
  first = 0
  for name in sorted(arrays, key=lambda name: (-arrays[name].nbytes, name)):
    found[name] = _plan(arrays[name], first)
    first += found[name].parts
  return found


def _plan(array: jax.Array, first: int) -> Plan:
  """How an array is written; splits a large shard into equal pieces, at most one per copy."""
  shape = array.sharding.shard_shape(array.shape)
  chunk = list(shape)
  axis = int(np.argmax(shape)) if shape else 0
  pieces = 1
  if np.prod(shape) * array.dtype.itemsize > SPLIT:
    pieces = next(n for n in range(copies_of(array), 0, -1) if shape[axis] % n == 0)
    chunk[axis] //= pieces
  return Plan(tuple(chunk), axis, pieces, first)


def shares(arrays: Mapping[str, jax.Array], plans: Mapping[str, Plan]) -> dict[str, Share]:
  """The shares that this process writes of all arrays; they may be donated once it returns.

  Each piece is written by one of the devices that hold it. The devices take turns, each of another
  process than the last, so that all processes write about the same number of bytes.
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
  """The pieces of an array that the devices of this process write, with their indices in it."""
  order = in_turn(copies_of(array), jax.process_count())
  writers = {order[(plan.first + piece) % len(order)]: piece for piece in range(plan.parts)}
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


def copies_of(array: jax.Array) -> int:
  """The number of devices that hold each shard of an array."""
  shard_size = int(np.prod(array.sharding.shard_shape(array.shape)))
  return max(len(array.sharding.device_set) * shard_size // max(array.size, 1), 1)


def in_turn(copies: int, processes: int) -> list[int]:
  """The numbers of the copies in writing order: each of another process than the last.

  Copies are numbered by device, and devices by process.
  """
  if copies % processes:
    return list(range(copies))
  each = copies // processes
  return [process * each + device for device in range(each) for process in range(processes)]


def write(place: dict, process: int, mine: dict[str, Share]):
  """Writes the shares of a process into its database; `mine` is empty afterwards.

  Args:
    place: the folder of the arrays, as a key-value store of `base.Storage.kvstore`.
    process: the number of the process.
    mine: from `shares`.

  Raises:
    ValueError: TensorStore's errors; nothing is being written any longer.
  """
  ts_context = context()
  database = _new_database(_below(place, f"{OF_PROCESS}{process}/"))
  for names in _groups({name: share.nbytes for name, share in mine.items()}):
    group = {name: mine.pop(name) for name in names}
    with ts.Transaction() as transaction:
      opened = [
        ts.open(_new(database, name, share), context=ts_context, transaction=transaction)
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
  """Merges the databases of all processes into one, and writes the file by which Orbax reads it.

  Args:
    place: as for `write`.
    processes: the number of processes.
    wanted: shape and chunk of every array, all of which must be complete.

  Raises:
    ValueError: as `write`, or an array is incomplete.
  """
  ts_context = context()
  whole = ts.KvStore.open(_new_database(place), context=ts_context).result()
  with ts.Transaction() as transaction:
    for process in range(processes):
      base = _below(place, f"{OF_PROCESS}{process}/")
      database = ts.KvStore.open(_database(base), context=ts_context).result()
      database.experimental_copy_range_to(whole.with_transaction(transaction)).result()
  found = collections.Counter(key.decode().rpartition("/")[0] for key in whole.list().result())
  for name, (shape, chunk) in wanted.items():
    counts = (-(-size // max(length, 1)) for size, length in zip(shape, chunk, strict=True))
    chunks = math.prod(counts)
    if found[_key(name)] != chunks + 1:  # the chunks and the metadata
      raise ValueError(
        f"Of {name}, {max(found[_key(name)] - 1, 0)} of {chunks} parts were written."
      )
  folder = ts.KvStore.open(place, context=ts_context).result()
  described = _metadata({name: shape for name, (shape, _) in wanted.items()})
  folder.write(METADATA, json.dumps(described)).result()


def read_arrays(place: dict, wanted: Mapping[str, jax.ShapeDtypeStruct]) -> dict[str, jax.Array]:
  """Arrays with the shardings that `wanted` gives; each process reads what its devices hold.

  Raises:
    ValueError: TensorStore's errors: an array is missing or incomplete, or has another shape or
      type.
  """
  ts_context = context()
  database = _database(place)
  found = {}
  for names in _groups({name: _bytes(wanted[name]) for name in wanted}):
    specs = {name: _known(database, name, wanted[name]) for name in names}
    opened = {name: ts.open(spec, context=ts_context) for name, spec in specs.items()}
    begun = {name: _begin(_checked(store.result()), wanted[name]) for name, store in opened.items()}
    found |= {name: _placed(wanted[name], begun.pop(name)) for name in names}
  return found


def read_here(place: dict, wanted: Mapping[str, jax.ShapeDtypeStruct]) -> dict[str, np.ndarray]:
  """Whole arrays, in the memory of this machine.

  Raises:
    ValueError: as `read_arrays`.
  """
  ts_context = context()
  database = _database(place)
  specs = {name: _known(database, name, wanted[name]) for name in wanted}
  opened = {name: ts.open(spec, context=ts_context) for name, spec in specs.items()}
  begun = {name: _checked(store.result()).read() for name, store in opened.items()}
  return {name: values.result() for name, values in begun.items()}


def _checked(store):
  """The array; refuses a chunk that is larger than the array, because chunks are read whole."""
  chunk = store.chunk_layout.read_chunk.shape or ()  # None for a scalar
  if any(size > max(most, 1) for size, most in zip(chunk, store.shape, strict=True)):
    raise ValueError(f"A part of {chunk} is larger than the array, {store.shape}.")
  return store


def _begin(store, wanted) -> dict:
  """Begins to read an array: for each device of this process, the pending shard."""
  indices = wanted.sharding.addressable_devices_indices_map(wanted.shape)
  pending = {}
  for index in indices.values():
    if str(index) not in pending:  # slices have no hash before Python 3.12
      pending[str(index)] = store[index].read()
  return {device: pending[str(index)] for device, index in indices.items()}


def _placed(wanted, begun: dict) -> jax.Array:
  pieces = [
    jax.device_put(values.result(), device, may_alias=False) for device, values in begun.items()
  ]
  return jax.make_array_from_single_device_arrays(wanted.shape, wanted.sharding, pieces)


def _bytes(wanted) -> int:
  """Bytes of the whole array, because chunks are read whole, also for a part of them."""
  return math.prod(wanted.shape) * wanted.dtype.itemsize


def _groups(sizes: Mapping[str, int]) -> Iterator[list[str]]:
  """The names, in groups of at most `AT_ONCE` bytes, or of one larger array."""
  group = []
  total = 0
  for name, size in sizes.items():
    if group and total + size > AT_ONCE:
      yield group
      group = []
      total = 0
    group.append(name)
    total += size
  if group:
    yield group


def context() -> ts.Context:
  """TensorStore's context: gives up after some seconds if a bucket does not answer."""
  indices = {"total_bytes_limit": 10**8}
  return ts.Context(
    {"gcs_request_retries": _TRIES, "s3_request_retries": _TRIES, "cache_pool": indices}
  )


def _below(place: dict, name: str) -> dict:
  return {**place, "path": place["path"] + name}


def _new_database(base: dict) -> dict:
  """An OCDBT database to write to; small arrays are stored in its index."""
  config = {
    "max_inline_value_bytes": 1024,
    "max_decoded_node_bytes": 10**8,
    "manifest_kind": "single",
  }
  written = {"config": config, "assume_config": True, "target_data_file_size": FILE}
  return _database(base) | written


def _database(base: dict) -> dict:
  """An OCDBT database; one request reads adjacent bytes."""
  return {
    "driver": "ocdbt",
    "base": base,
    "experimental_read_coalescing_threshold_bytes": 2**20,
    "experimental_read_coalescing_merged_bytes": AT_ONCE,
    "experimental_read_coalescing_interval": "1ms",
  }


def _new(database: dict, name: str, share: Share) -> dict:
  """The spec of an array to write; created unless another share has created it."""
  metadata = {
    "shape": share.shape,
    "chunks": [max(size, 1) for size in share.chunk],
    "compressor": {"id": "zstd", "level": 1},
  }
  written = {"metadata": metadata, "store_data_equal_to_fill_value": True}
  return _array(database, name, share.dtype) | written | {"create": True, "open": True}


def _known(database: dict, name: str, wanted) -> dict:
  """The spec of an array to read; missing chunks are errors, not zeros."""
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
  """The tree of the arrays in Orbax's format; key type 2 is a dictionary's key."""
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
