"""Storage in buckets, which have objects with keys but no folders, renames or locks.

- A folder exists if the key of an object begins with its path and "/".
- A growing file is FILE.parts/NUMBER.NAME, one object for each part. If FILE exists, it counts, and
  parts beside it are leftovers of a killed process.
- A folder that is being renamed or removed is hidden by an object FOLDER.hidden, which is written
  before its first object is touched and deleted after the last.
- A lock is an object that its holder keeps rewriting (`lease.py`).

A request that fails for a transient reason is retried for some seconds. Then the error goes to the
caller, who may have more time (`storage/base.py`).
"""

import collections
import contextlib
import errno
import os
import pathlib
import secrets
import tempfile
from collections.abc import Iterator
from typing import BinaryIO

import tensorstore as ts

from vit_jax.extras.buckets.client import NEW, Client, Found, place
from vit_jax.extras.buckets.entry import Entry
from vit_jax.extras.buckets.errors import RefusedError
from vit_jax.extras.buckets.growing import Parts, plain_name
from vit_jax.extras.buckets.lease import Lease
from vit_jax.extras.buckets.reading import Stream
from vit_jax.storage import arrays
from vit_jax.storage.base import FILE, FOLDER, NOTHING, ChangedError, FileVersion, Storage
from vit_jax.storage.paths import UrlPath

PARTS = ".parts"
HIDDEN = ".hidden"


def storage(service) -> Storage:
  """The storage of all buckets of a service, as `Client` takes it."""
  return _Buckets(service)


class _Buckets(Client):
  """`base.Storage` for the URLs of a service."""

  direct = False

  def open(self, path) -> BinaryIO:
    try:
      found = [self.stat(path)]
    except FileNotFoundError:
      found = Parts(self, path).found()
      if not found:
        raise
    return Stream(lambda piece: self.read(path, *piece), found, self.at_once)

  def kind(self, path) -> str:
    if not place(path)[1]:
      self.anything_in(path)  # raises if there is no bucket
      return FOLDER
    with contextlib.suppress(FileNotFoundError):
      self.stat(path)
      return FILE
    if self.anything_in(path):
      with contextlib.suppress(FileNotFoundError):
        self.stat(_mark(path))
        return NOTHING
      return FOLDER
    if self.anything_in(path.with_name(path.name + PARTS)):
      return FILE
    return NOTHING

  def stamp(self, path) -> FileVersion:
    found = self.stat(path)
    return FileVersion(found.size, found.e_tag)

  def part(self, path, stamp, start, stop) -> memoryview:
    found = Found(place(path)[1], *stamp)
    try:
      return self.view(path, found, start, min(stop, stamp.size))
    except (FileNotFoundError, FileExistsError) as error:
      raise ChangedError(path) from error

  def scan(self, folder) -> Iterator[Entry]:
    found, prefixes = self.in_folder(folder)
    folders = [Entry(prefix.rpartition("/")[2]) for prefix in prefixes]
    objects = [Entry(at.key.rpartition("/")[2], FileVersion(at.size, at.e_tag)) for at in found]
    entries = {entry.name: entry for entry in (*folders, *objects)}
    marks = [name for name in entries if name.endswith(HIDDEN)]
    for name in (*marks, *(mark.removesuffix(HIDDEN) for mark in marks)):
      entries.pop(name, None)
    return iter(entries.values())

  def names(self, folder) -> list[str]:
    return list({entry.name.removesuffix(PARTS) for entry in self.scan(folder)})

  def sizes_below(self, folder) -> Iterator[tuple[str, int]]:
    within = len(place(folder / "x")[1]) - 1
    sizes = {at.key[within:]: at.size for at in self.listed(folder)}
    hidden = tuple(f"{path.removesuffix(HIDDEN)}/" for path in sizes if path.endswith(HIDDEN))
    shown = collections.Counter()
    for path, size in sizes.items():
      if not path.startswith(hidden) and not path.endswith(HIDDEN):
        shown[plain_name(path)] += size
    return iter(sorted(shown.items()))

  def kvstore(self, folder) -> dict:
    bucket, key = place(folder)
    return self._service.kvstore(bucket, f"{key}/")

  def make_folder(self, path):
    place(path)

  def partial(self, path) -> str:
    return os.path.join(tempfile.gettempdir(), f"{secrets.token_hex(8)}.partial")

  def put(self, partial: str, path, *, new: bool):
    os.stat(partial)  # nothing was written: FileNotFoundError
    parts = Parts(self, path)
    if not new:
      self.upload(path, pathlib.Path(partial))
      parts.remove()
    elif parts.found():
      raise FileExistsError(errno.EEXIST, "There is a file", str(path))
    else:
      with open(partial, "rb") as file:
        self.write(path, file.read(), NEW)

  def put_bytes(self, path, content):
    self.upload(path, content)
    Parts(self, path).remove()

  def sync(self, path):
    pass

  def append(self, path) -> Parts:
    parts = Parts(self, path)
    parts.begin()
    return parts

  def rename(self, path, target):
    if self.kind(path) == FILE:
      self._rename_file(path, target)
      return
    mark = _mark(target)
    self.write(mark, path.name.encode(), NEW)  # only one of several processes succeeds
    below = []
    try:
      below = self.listed(target)
      if below:
        raise OSError(errno.ENOTEMPTY, "The folder is not empty", str(target))
      self._copy_all(path, target)
    except OSError:
      with contextlib.suppress(OSError):  # if this fails, the folder stays hidden
        if not below:
          self.delete_all(target, self.listed(target))
        self.delete(mark)
      raise
    self.delete(mark)
    self._remove_folder(path)  # a failure must not hide that the target is there

  def _copy_all(self, path, target):
    _, old = place(path)
    _, new = place(target)

    def copy(at):
      self.copy(path, at.key, new + at.key.removeprefix(old))

    self.at_once(copy, self.listed(path))

  def _rename_file(self, path, target):
    with self.open(path) as source:
      self.upload(target, source.read())
    self.remove(path)

  def remove(self, path):
    self.delete(path)
    Parts(self, path).remove()
    self._remove_folder(path)

  def _remove_folder(self, path):
    with contextlib.suppress(OSError):  # as far as possible; leftovers stay hidden
      mark = _mark(path)
      if self._anything_below(path):
        self.write(mark, b"")
        self._delete_below(path)
      self.delete(mark)

  def _anything_below(self, path) -> bool:
    try:
      return self.anything_in(path)
    except RefusedError:  # a key in it is not a valid path
      return True

  def _delete_below(self, path):
    """Deletes with TensorStore, which takes any key; obstore cannot name folder marker objects."""
    try:
      store = ts.KvStore.open(self.kvstore(path), context=arrays.context()).result()
      store.delete_range(ts.KvStore.KeyRange()).result()
    except ValueError as error:
      raise OSError(errno.EIO, str(error), str(path)) from error

  @contextlib.contextmanager
  def lock(self, path) -> Iterator[Lease]:
    with contextlib.closing(Lease(self, path)) as lease:
      lease.take()
      yield lease

  def is_locked(self, path) -> bool:
    return Lease(self, path).is_held()


def _mark(folder) -> UrlPath:
  """The tombstone that hides a folder."""
  return folder.with_name(folder.name + HIDDEN)
