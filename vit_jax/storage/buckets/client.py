"""Requests for objects by their paths, each made again if it fails for a passing reason."""

import concurrent.futures
import contextlib
import errno
import functools
import random
import threading
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from vit_jax.process.errors import ConfigError
from vit_jax.storage.buckets.objects import Found, Objects, Reason, as_os_error
from vit_jax.storage.paths import UrlPath

PAUSES = (0.2, 0.5, 1.0, 2.0)  # seconds between two tries; each is drawn from half of it on
WORKERS = 10  # requests at once; Google's library keeps as many connections
Answer = TypeVar("Answer")


class Client:
  """Requests to one service. All members raise OSErrors."""

  def __init__(self, objects: Objects):
    """Makes the client, which asks for nothing before the first request."""
    self._objects, self._slots = objects, threading.BoundedSemaphore(WORKERS)

  def request(self, path: UrlPath, ask: Callable[[], Answer]) -> Answer:
    """What `ask` returns; its errors become OSErrors that name `path`."""
    for pause in (*PAUSES, None):
      try:
        with self._slots:
          return ask()
      except ConfigError:  # the library is missing, and with it what tells errors apart
        raise
      except Exception as error:  # libraries have no common one
        cut = isinstance(error, _CutShortError)
        reason = Reason.PASSING if cut else self._objects.reason(error)
        if reason is not Reason.PASSING or pause is None:
          raise as_os_error(error, reason, str(path), self._objects.who) from error
      time.sleep(pause * random.uniform(0.5, 1.0))
    raise AssertionError

  def stat(self, path: UrlPath) -> Found:
    """The object at a path."""
    return self.request(path, lambda: self._objects.stat(*place(path)))

  def read(self, path: UrlPath, found: Found, start: int, stop: int) -> bytes:
    """A part of an object that was found."""

    def ask():
      content = self._objects.read(place(path)[0], found, start, stop)
      if len(content) != stop - start:
        raise _CutShortError
      return content

    if start >= stop:
      return b""
    content = None
    with contextlib.suppress(Exception):  # of the credentials; `ask` meets it again, and tells it
      content = self._objects.read_direct(place(path)[0], found, start, stop)
    return self.request(path, ask) if content is None else content

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
      return self._objects.write(*place(path), content, expected)

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
    """All that begins with a path and a suffix, as `Objects.list`."""
    bucket, key = place(path)
    prefix = key + suffix if key else ""
    found, beginnings, page = [], [], ""
    while True:
      ask = functools.partial(self._objects.list, bucket, prefix, page, deep=deep)
      objects, folders, page = self.request(path, ask)
      found += objects
      beginnings += folders
      if not page:
        return found, beginnings

  def delete(self, path: UrlPath, key: str = ""):
    """Deletes the object at a path, or at a key in its bucket, if there is one."""
    bucket, own = place(path)
    self.request(path, lambda: self._objects.delete(bucket, key or own))

  def delete_all(self, path: UrlPath, found: Iterable[Found]):
    """Deletes objects in the bucket of `path`."""
    self.at_once(lambda at: self.delete(path, at.key), found)

  def at_once(self, ask: Callable[[Found], Answer], found: Iterable[Found]) -> list[Answer]:
    """What `ask` returns for each object, asked by several threads."""
    with concurrent.futures.ThreadPoolExecutor(WORKERS, "bucket") as pool:
      return list(pool.map(ask, found))

  def make_folder_object(self, path: UrlPath):
    """Writes the empty object PATH/, which pathlib has no path for."""
    bucket, key = place(path)
    self.request(path, lambda: self._objects.write(bucket, f"{key}/", b"", None))

  def upload(self, path: UrlPath, file: str):
    """Writes an object with the content of a file of this machine."""
    self.request(path, lambda: self._objects.upload(*place(path), file))

  def copy(self, path: UrlPath, key: str, target: str):
    """Copies an object within the bucket of `path`."""
    self.request(path, lambda: self._objects.copy(place(path)[0], key, target))


class _CutShortError(Exception):
  """An answer has too few bytes."""


def place(path) -> tuple[str, str]:
  """The bucket and the key of a path."""
  if len(path.parts) < 2:
    raise ConfigError(f"{path} names no bucket; give {path.parts[0]}//BUCKET/FOLDER.")
  return path.parts[1], "/".join(path.parts[2:])
