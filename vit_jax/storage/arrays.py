"""The arrays of a checkpoint, by TensorStore: Zarr in an OCDBT database, laid out as Orbax does.

FOLDER/ocdbt.process_N is the database of process N: the shares of arrays that it wrote. FOLDER
itself is the database of all, which refers to the bytes in the others; `merge` makes it.
"""

import json
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import jax
import numpy as np
import tensorstore as ts

OF_PROCESS = "ocdbt.process_"  # the folder of each process's database
METADATA = "_METADATA"  # Orbax's file, by which its tools read the arrays
AT_ONCE = 2**28  # bytes of arrays that are encoded or read at once
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


def shares(arrays: Mapping[str, jax.Array]) -> dict[str, Share]:
  """What this process writes of the arrays that all hold; they may be donated once it returns.

  Each piece is written by one device of those that hold it. The largest array goes to the first
  of them, the next one to the second, and so on, so that all processes write about as much.

  Raises:
    ValueError: two arrays would have one key.
  """
  if len({_key(name) for name in arrays}) < len(arrays):
    raise ValueError("Two arrays have names that differ in a slash and a dot alone; rename one.")
  ordered = sorted(arrays, key=lambda name: (-arrays[name].nbytes, name))
  mine = {name: _mine(number, arrays[name]) for number, name in enumerate(ordered)}
  for pieces in mine.values():
    for piece in pieces:
      piece.data.copy_to_host_async()
  return {name: _share(arrays[name], pieces) for name, pieces in mine.items() if pieces}


def _mine(number: int, array: jax.Array) -> list:
  """The pieces that the devices of this process write of an array."""
  chunk = array.sharding.shard_shape(array.shape)
  copies = len(array.sharding.device_set) * int(np.prod(chunk)) // max(array.size, 1)
  return [at for at in array.addressable_shards if at.replica_id == number % max(copies, 1)]


def _share(array, pieces) -> Share:
  chunk = array.sharding.shard_shape(array.shape)
  values = [(piece.index, np.asarray(piece.data)) for piece in pieces]
  return Share(array.shape, array.dtype, chunk, values)


def write(place: dict, process: int, mine: dict[str, Share]):
  """Writes the shares of a process into its database; `mine` is empty afterwards.

  Args:
    place: the folder of the arrays, as `base.Storage.kvstore` describes it.
    process: the number of the process.
    mine: of `shares`.

  Raises:
    ValueError: TensorStore's errors; nothing is being written any longer.
  """
  context, database = _context(), _database(_below(place, f"{OF_PROCESS}{process}/"))
  for names in _groups({name: share.nbytes for name, share in mine.items()}):
    group = {name: mine.pop(name) for name in names}
    with ts.Transaction() as transaction:
      opened = [
        ts.open(_new(database, name, share), context=context, transaction=transaction)
        for name, share in group.items()
      ]
      written = [
        store.result()[index].write(piece)
        for store, share in zip(opened, group.values(), strict=True)
        for index, piece in share.pieces
      ]
      for piece in written:
        piece.result()


def merge(place: dict, processes: int, arrays: Mapping[str, jax.ShapeDtypeStruct]):
  """Makes one database of those of all processes, and the file by which Orbax reads it.

  Raises:
    ValueError: as `write`, or an array is in none of them, in whole.
  """
  context = _context()
  whole = ts.KvStore.open(_database(place), context=context).result()
  with ts.Transaction() as transaction:
    for process in range(processes):
      base = _below(place, f"{OF_PROCESS}{process}/")
      part = ts.KvStore.open(_database(base), context=context).result()
      part.experimental_copy_range_to(whole.with_transaction(transaction)).result()
  folder = ts.KvStore.open(place, context=context).result()
  folder.write(METADATA, json.dumps(_metadata(arrays))).result()


def read(place: dict, wanted: Mapping[str, jax.ShapeDtypeStruct]) -> dict[str, jax.Array]:
  """Arrays with the shardings that `wanted` gives; each process reads what its devices hold.

  Raises:
    ValueError: TensorStore's errors: an array is not there, in whole, or has another shape or type.
  """
  context, database, found = _context(), _database(place), {}
  for names in _groups({name: _addressable(wanted[name]) for name in wanted}):
    opened = {
      name: ts.open(_known(database, name, wanted[name]), context=context) for name in names
    }
    begun = {name: _begin(store.result(), wanted[name]) for name, store in opened.items()}
    found |= {name: _placed(wanted[name], begun.pop(name)) for name in names}
  return found


def read_here(place: dict, wanted: Mapping[str, jax.ShapeDtypeStruct]) -> dict[str, np.ndarray]:
  """Whole arrays, in the memory of this machine.

  Raises:
    ValueError: as `read`.
  """
  context, database = _context(), _database(place)
  opened = {name: ts.open(_known(database, name, wanted[name]), context=context) for name in wanted}
  begun = {name: store.result().read() for name, store in opened.items()}
  return {name: values.result() for name, values in begun.items()}


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


def _addressable(wanted) -> int:
  """Bytes that this process reads of an array."""
  parts = wanted.sharding.addressable_devices_indices_map(wanted.shape).values()
  chunk = wanted.sharding.shard_shape(wanted.shape)
  return len(set(map(str, parts))) * int(np.prod(chunk)) * wanted.dtype.itemsize


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


def _context() -> ts.Context:
  indices = {"total_bytes_limit": 10**8}
  return ts.Context(
    {"gcs_request_retries": _TRIES, "s3_request_retries": _TRIES, "cache_pool": indices}
  )


def _below(place: dict, name: str) -> dict:
  return {**place, "path": place["path"] + name}


def _database(base: dict) -> dict:
  """An OCDBT database; the values of small arrays lie in its index."""
  config = {
    "max_inline_value_bytes": 1024,
    "max_decoded_node_bytes": 10**8,
    "manifest_kind": "single",
  }
  return {
    "driver": "ocdbt",
    "base": base,
    "config": config,
    "assume_config": True,
    "target_data_file_size": FILE,
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


def _metadata(arrays: Mapping[str, jax.ShapeDtypeStruct]) -> dict:
  """The tree of the arrays, in Orbax's words; a key of type 2 is one of a dictionary."""
  tree = {}
  for name, array in arrays.items():
    keys = tuple(name.split("/"))
    tree[str(keys)] = {
      "key_metadata": [{"key": key, "key_type": 2} for key in keys],
      "value_metadata": {
        "value_type": "np.ndarray",
        "skip_deserialize": False,
        "write_shape": list(array.shape),
      },
    }
  return {
    "tree_metadata": tree,
    "use_ocdbt": True,
    "use_zarr3": False,
    "store_array_data_equal_to_fill_value": True,
    "custom_metadata": None,
  }
