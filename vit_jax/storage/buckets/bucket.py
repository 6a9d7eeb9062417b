"""Runs in buckets, which have objects with keys and neither folders, renames nor locks.

- A folder is there if the key of an object begins with its path and "/"; `make_folder` writes an
  empty object FOLDER/.
- A file that grows is FILE.parts/NUMBER.NAME, one object for each piece. If FILE is there, it
  counts, and parts beside it are what a killed process has left.
- A folder that is being renamed or removed is hidden by an object FOLDER.hidden, which is made
  before the first object of it is touched and goes after the last.
- A lock is an object that its holder writes again and again (`lease.py`).

A request that fails for a passing reason is tried again for some seconds. Then the error is the
caller's, who may have more time (`process/retry.py`).
"""

import contextlib
import errno
import os
import secrets
import tempfile
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from vit_jax.process.errors import ConfigError
from vit_jax.storage.base import FILE, FOLDER, NOTHING, ChangedError, Stamp, Storage
from vit_jax.storage.buckets.client import Client, place
from vit_jax.storage.buckets.growing import Parts, plain_name
from vit_jax.storage.buckets.lease import Lease
from vit_jax.storage.buckets.objects import NEW, Entry, Found, Objects
from vit_jax.storage.buckets.reading import Stream
from vit_jax.storage.paths import UrlPath

PARTS, HIDDEN = ".parts", ".hidden"


def storage(objects: Objects) -> Storage:
  """The storage of all buckets of a service."""
  return _Buckets(objects)


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
    return Stream(lambda at, start, stop: self.read(path, at, start, stop), found)

  def kind(self, path) -> str:
    key = place(path)[1]
    found, beginnings = self.listed(path, "", deep=False)
    keys = {at.key for at in found}
    if not key:
      return FOLDER
    if key in keys or f"{key}{PARTS}/" in beginnings:
      return FILE
    hidden = f"{key}{HIDDEN}" in keys
    return FOLDER if f"{key}/" in beginnings and not hidden else NOTHING

  def stamp(self, path) -> Stamp:
    found = self.stat(path)
    return Stamp(found.size, found.version)

  def part(self, path, stamp, start, stop) -> bytes:
    found = Found(place(path)[1], *stamp)
    try:
      return self.read(path, found, start, min(stop, stamp.size))
    except (FileNotFoundError, FileExistsError) as error:
      raise ChangedError(path) from error

  def scan(self, folder) -> Iterator[Entry]:
    within = len(place(folder / "x")[1]) - 1
    found, beginnings = self.listed(folder, "/", deep=False)
    _refuse_nameless(
      folder, [*(name[within:] for name in beginnings), *(at.key[within:] for at in found)]
    )
    folders = [Entry(name[within:-1]) for name in beginnings]
    objects = [Entry(at.key[within:], Stamp(at.size, at.version)) for at in found]
    entries = {entry.name: entry for entry in (*folders, *objects)}
    marks = [name for name in entries if name.endswith(HIDDEN)]
    for name in (*marks, *(mark.removesuffix(HIDDEN) for mark in marks), ""):
      entries.pop(name, None)
    return iter(entries.values())

  def names(self, folder) -> list[str]:
    return list({entry.name.removesuffix(PARTS) for entry in self.scan(folder)})

  def files_below(self, folder) -> Iterator[str]:
    within = len(place(folder / "x")[1]) - 1
    paths = [at.key[within:] for at in self.listed(folder, "/", deep=True)[0]]
    _refuse_nameless(folder, paths)
    hidden = tuple(f"{path.removesuffix(HIDDEN)}/" for path in paths if path.endswith(HIDDEN))
    shown = (path for path in paths if not path.startswith(hidden))
    return iter(
      sorted({plain_name(path) for path in shown if not path.endswith((HIDDEN, "/")) and path})
    )

  def make_folder(self, path):
    if place(path)[1]:
      self.make_folder_object(path)

  def partial(self, path) -> str:
    return os.path.join(tempfile.gettempdir(), f"{secrets.token_hex(8)}.partial")

  def put(self, partial: str, path, *, new: bool):
    os.stat(partial)  # nothing was written: FileNotFoundError
    parts = Parts(self, path)
    if not new:
      self.upload(path, partial)
      parts.remove()
    elif parts.found():
      raise FileExistsError(errno.EEXIST, "There is a file", str(path))
    else:
      with open(partial, "rb") as file:
        self.write(path, file.read(), NEW)

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
    self.write(mark, path.name.encode(), NEW)  # of several processes, one goes on
    below = []
    try:
      below, _ = self.listed(target, "/", deep=True)
      if below:
        raise OSError(errno.ENOTEMPTY, "The folder is not empty", str(target))
      self._copy_all(path, target)
    except OSError:
      with contextlib.suppress(OSError):  # else it stays hidden
        if not below:
          self.delete_all(target, self.listed(target, "/", deep=True)[0])
        self.delete(mark)
      raise
    self.delete(mark)
    self.remove(path)

  def _copy_all(self, path, target):
    (_, old), (_, new) = place(path), place(target)
    found, _ = self.listed(path, "/", deep=True)
    self.at_once(lambda at: self.copy(path, at.key, new + at.key.removeprefix(old)), found)

  def _rename_file(self, path, target):
    with self.open(path) as source:
      self.write(target, source.read())
    self.remove(path)

  def remove(self, path):
    self.delete(path)
    Parts(self, path).remove()
    with contextlib.suppress(OSError):  # as far as possible; what is left is hidden
      below, _ = self.listed(path, "/", deep=True)
      mark = _mark(path)
      if below:
        self.write(mark, b"")
        self.delete_all(path, below)
      self.delete(mark)

  @contextlib.contextmanager
  def lock(self, path) -> Iterator[Lease]:
    with contextlib.closing(Lease(self, path)) as lease:
      lease.take()
      yield lease


def _refuse_nameless(folder, keys: Iterable[str]):
  """Refuses keys that no path has, before one is left out, or taken for another, without a word."""
  for key in filter(None, keys):
    if not {"", ".", ".."}.isdisjoint(key.removesuffix("/").split("/")):
      raise ConfigError(
        f'"{folder}" holds the key {key!r}, which is no path: a part of it is empty, "." or ".."; '
        "give its objects other keys."
      )


def _mark(folder) -> UrlPath:
  """What hides a folder."""
  return folder.with_name(folder.name + HIDDEN)
