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

import concurrent.futures
import contextlib
import errno
import os
import random
import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO, TypeVar

from vit_jax.process.errors import ConfigError
from vit_jax.storage.base import FILE, FOLDER, NOTHING
from vit_jax.storage.buckets.growing import Parts, plain_name
from vit_jax.storage.buckets.lease import Lease
from vit_jax.storage.buckets.objects import NEW, Found, Objects, Reason, as_os_error
from vit_jax.storage.buckets.reading import Stream
from vit_jax.storage.paths import UrlPath

PAUSES = (0.2, 0.5, 1.0, 2.0)  # seconds between two tries; each is drawn from half of it on
WORKERS = 10  # requests at once; Google's library keeps as many connections
PARTS, HIDDEN = ".parts", ".hidden"
Answer = TypeVar("Answer")


class Bucket:
  """All buckets of one service; `base.Storage` for its URLs."""

  direct = False

  def __init__(self, objects: Objects):
    """Makes the storage of a service, which is asked for nothing before the first request."""
    self._objects, self._slots = objects, threading.BoundedSemaphore(WORKERS)

  # Requests, each tried again.

  def request(self, path: UrlPath, ask: Callable[[], Answer]) -> Answer:
    """What `ask` returns; its errors become OSErrors that name `path`."""
    for pause in (*PAUSES, None):
      try:
        with self._slots:
          return ask()
      except Exception as error:  # libraries have no common one
        cut = isinstance(error, _CutShortError)
        reason = Reason.PASSING if cut else self._objects.reason(error)
        if reason is not Reason.PASSING or pause is None:
          raise as_os_error(error, reason, str(path), self._objects.who) from error
      time.sleep(pause * random.uniform(0.5, 1.0))
    raise AssertionError

  def stat(self, path: UrlPath) -> Found:
    """The object at a path."""
    return self.request(path, lambda: self._objects.stat(*_place(path)))

  def read(self, path: UrlPath, found: Found, start: int, stop: int) -> bytes:
    """A part of an object that was found."""

    def ask():
      content = self._objects.read(_place(path)[0], found, start, stop)
      if len(content) != stop - start:
        raise _CutShortError
      return content

    if start >= stop:
      return b""
    return self.request(path, ask)

  def write(self, path: UrlPath, content: bytes, expected: str | None = None) -> str:
    """Writes an object if its version is the expected one; returns its version.

    An answer that is lost leaves open whether the object was written. The next try then finds that
    it has changed, and looks whether its content is the one to write.

    Raises:
      FileExistsError: it has another version.
    """
    tries = 0

    def ask():
      nonlocal tries
      tries += 1
      return self._objects.write(*_place(path), content, expected)

    try:
      return self.request(path, ask)
    except (FileExistsError, FileNotFoundError) as error:
      if tries > 1:
        with contextlib.suppress(FileNotFoundError):
          found = self.stat(path)
          if found.size == len(content) and self.read(path, found, 0, found.size) == content:
            return found.version
      raise FileExistsError(errno.EEXIST, "Another process has written it", str(path)) from error

  def listed(self, path: UrlPath, suffix: str, *, deep: bool) -> tuple[list[Found], list[str]]:
    """What begins with a path and a suffix, as `Objects.list`."""
    bucket, key = _place(path)
    prefix = key + suffix if key else ""
    return self.request(path, lambda: self._objects.list(bucket, prefix, deep=deep))

  def delete(self, path: UrlPath, key: str = ""):
    """Deletes the object at a path, or at a key in its bucket, if there is one."""
    bucket, own = _place(path)
    self.request(path, lambda: self._objects.delete(bucket, key or own))

  def delete_all(self, path: UrlPath, found: Iterable[Found]):
    """Deletes objects in the bucket of `path`."""
    self.at_once(lambda at: self.delete(path, at.key), found)

  def at_once(self, ask: Callable[[Found], Answer], found: Iterable[Found]) -> list[Answer]:
    """What `ask` returns for each object, asked by several threads."""
    with concurrent.futures.ThreadPoolExecutor(WORKERS, "bucket") as pool:
      return list(pool.map(ask, found))

  # The members of `base.Storage`.

  def open(self, path) -> BinaryIO:
    try:
      found = [self.stat(path)]
    except FileNotFoundError:
      found = Parts(self, path).found()
      if not found:
        raise
    return Stream(lambda at, start, stop: self.read(path, at, start, stop), found)

  def kind(self, path) -> str:
    key = _place(path)[1]
    found, beginnings = self.listed(path, "", deep=False)
    keys = {at.key for at in found}
    if not key:
      return FOLDER
    if key in keys or f"{key}{PARTS}/" in beginnings:
      return FILE
    hidden = f"{key}{HIDDEN}" in keys
    return FOLDER if f"{key}/" in beginnings and not hidden else NOTHING

  def names(self, folder) -> list[str]:
    within = len(_place(folder / "x")[1]) - 1
    found, beginnings = self.listed(folder, "/", deep=False)
    entries = {at.key[within:] for at in found} | {name[within:-1] for name in beginnings}
    hidden = {name.removesuffix(HIDDEN) for name in entries if name.endswith(HIDDEN)}
    shown = entries - hidden - {f"{name}{HIDDEN}" for name in hidden} - {""}
    return list({name.removesuffix(PARTS) for name in shown})

  def files_below(self, folder) -> Iterator[str]:
    within = len(_place(folder / "x")[1]) - 1
    paths = [at.key[within:] for at in self.listed(folder, "/", deep=True)[0]]
    hidden = tuple(f"{path.removesuffix(HIDDEN)}/" for path in paths if path.endswith(HIDDEN))
    shown = (path for path in paths if not path.startswith(hidden))
    return iter(
      sorted({plain_name(path) for path in shown if not path.endswith((HIDDEN, "/")) and path})
    )

  def make_folder(self, path):
    bucket, key = _place(path)
    if key:
      self.request(path, lambda: self._objects.write(bucket, f"{key}/", b"", None))

  def partial(self, path) -> str:
    return os.path.join(tempfile.gettempdir(), f"{secrets.token_hex(8)}.partial")

  def put(self, partial: str, path, *, new: bool):
    os.stat(partial)  # nothing was written: FileNotFoundError
    parts = Parts(self, path)
    if not new:
      self.request(path, lambda: self._objects.upload(*_place(path), partial))
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
    bucket, key = _place(path)
    found, _ = self.listed(path, "/", deep=True)
    moved = lambda at: _place(target)[1] + at.key.removeprefix(key)
    self.at_once(
      lambda at: self.request(path, lambda: self._objects.copy(bucket, at.key, moved(at))), found
    )

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



class _CutShortError(Exception):
  """An answer has too few bytes."""


def _mark(folder) -> UrlPath:
  """What hides a folder."""
  return folder.with_name(folder.name + HIDDEN)


def _place(path) -> tuple[str, str]:
  """The bucket and the key of a path."""
  if len(path.parts) < 2:
    raise ConfigError(f"{path} names no bucket; give {path.parts[0]}//BUCKET/FOLDER.")
  return path.parts[1], "/".join(path.parts[2:])
