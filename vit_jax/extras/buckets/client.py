"""Requests for objects by their paths, retried if they fail for a transient reason."""

import concurrent.futures
import contextlib
import errno
import pathlib
import random
import threading
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

import obstore
from obstore.store import ObjectStore

from vit_jax.extras.buckets.errors import Reason, as_os_error, reason, unusable
from vit_jax.process.errors import ConfigError
from vit_jax.storage.paths import UrlPath

PAUSES = (0.2, 0.5, 1.0, 2.0)  # seconds between tries, each shortened at random by up to half
WORKERS = 16  # concurrent requests
IN_PARTS = 2**23  # bytes; larger files are uploaded in parts
LONGEST = 60  # seconds after which nothing is retried
PAGE = 1000  # objects of a listing that are converted at once
RETRIES = 4  # by obstore, for each page of a listing and each part of a file
Answer = TypeVar("Answer")
Item = TypeVar("Item")


class Found(NamedTuple):
  """An object in a bucket; its ETag changes with the content."""

  key: str
  size: int
  e_tag: str
  generation: str = ""  # only from Google, and not in listings


NEW = Found("", 0, "")  # expects that there is no object


class Client:
  """Requests to one service. All members raise OSErrors, or a ConfigError."""

  def __init__(self, service):
    """Makes the client; makes no request.

    Args:
      service: one of `services`. `who` tells in a few words how to get credentials;
        `store(bucket, retries)` is a bucket for obstore, which retries a failed request `retries`
        times, and `kvstore(bucket, path)` a folder of a bucket for TensorStore. Both raise
        ConfigError if the environment variables cannot be used.
    """
    self._service = service
    self._stores = {}
    self._answered = False
    self._making = threading.Lock()

  def _store(self, bucket: str, retries: int) -> ObjectStore:
    if store := self._stores.get((bucket, retries)):
      return store
    with self._making:
      if (bucket, retries) not in self._stores:
        try:
          self._stores[bucket, retries] = self._service.store(bucket, retries)
        except ConfigError:
          raise
        except Exception as error:  # obstore reads key files and variables, and has its own errors
          raise unusable(error, bucket, self._service.who) from error
      return self._stores[bucket, retries]

  def request(
    self, path: UrlPath, ask: Callable[[ObjectStore], Answer], *, retries: int = 0
  ) -> Answer:
    """Calls `ask` with the bucket of a path; its errors become OSErrors that name `path`.

    Args:
      path: the path of the object or folder.
      ask: makes one request, or several, such as for the pages of a listing.
      retries: how often obstore retries each single request, so that not all are repeated.
    """
    bucket, _ = place(path)
    store = self._store(bucket, retries)
    end = time.monotonic() + LONGEST
    for pause in (*PAUSES, None):
      try:
        answer = ask(store)
        self._answered = True
        return answer
      except ConfigError:
        raise
      except Exception as error:  # obstore raises its own and Python's
        why = self._reason(error)
        if why is not Reason.PASSING or pause is None or time.monotonic() > end:
          raise as_os_error(error, why, str(path), self._service.who) from error
      time.sleep(pause * random.uniform(0.5, 1.0))
    raise AssertionError

  def _reason(self, error: Exception) -> Reason | None:
    if isinstance(error, _CutShortError):
      return Reason.PASSING
    why = reason(error)
    if why is Reason.NO_TOKEN and self._answered:  # a provider that gave a token will give another
      return Reason.PASSING
    return why

  def stat(self, path: UrlPath) -> Found:
    """The object at a path."""
    _, key = place(path)

    def ask(store):
      try:
        return _found(obstore.head(store, key))
      except obstore.exceptions.PermissionDeniedError:  # an answer to HEAD has no message
        return _found(obstore.get(store, key).meta)

    return self.request(path, ask)

  def read(self, path: UrlPath, found: Found, start: int, stop: int) -> bytes:
    """Like `view`, copied into Python's own memory."""
    return bytes(self.view(path, found, start, stop))

  def view(self, path: UrlPath, found: Found, start: int, stop: int) -> memoryview:
    """A range of an object; raises FileExistsError if the object has changed."""
    if start >= stop:
      return memoryview(b"")

    def ask(store):
      answer = obstore.get(store, found.key, options={"range": (start, stop)})
      if _found(answer.meta).e_tag != found.e_tag:
        return None
      content = memoryview(answer.bytes())
      if len(content) != stop - start:
        raise _CutShortError
      return content

    content = self.request(path, ask)
    if content is None:
      raise FileExistsError(errno.EEXIST, "Another process has written it", str(path))
    return content

  def write(self, path: UrlPath, content: bytes, expected: Found | None = None) -> Found:
    """Writes an object if the expected one is there; returns the new one.

    If an answer is lost, the object may have been written. The retry then finds that it has
    changed, and compares its content.

    Args:
      path: the path of the object.
      content: its bytes.
      expected: the object that is there now, `NEW` for none; None: any.

    Raises:
      FileExistsError: another object is there.
    """
    _, key = place(path)
    tries = 0

    def ask(store):
      nonlocal tries
      tries += 1
      return obstore.put(store, key, content, mode=_mode(expected), use_multipart=False)

    try:
      written = self.request(path, ask)
    except (FileExistsError, FileNotFoundError) as error:
      if isinstance(error, FileNotFoundError) and expected in (None, NEW):
        raise as_os_error(error, Reason.NO_BUCKET, str(path), self._service.who) from error
      if tries > 1:
        with contextlib.suppress(FileNotFoundError):
          found = self.stat(path)
          if found.size == len(content) and self.read(path, found, 0, found.size) == content:
            return found
      raise FileExistsError(errno.EEXIST, "Another process has written it", str(path)) from error
    return _found({"path": key, "size": len(content), **written})

  def listed(self, path: UrlPath) -> list[Found]:
    """All objects below a folder."""
    _, key = place(path)
    if not key:
      self.in_folder(path)  # refuses keys that begin with a slash; obstore strips it here

    def ask(store):
      pages = obstore.list(store, key or None, chunk_size=PAGE)
      return [_found(at) for page in pages for at in page]

    found: dict[str, Found] = {}
    for at in self._of_bucket(path, ask):
      known = found.get(at.key)
      if known is None or at.size > known.size:
        found[at.key] = at
    empty = [at for at in found.values() if not at.size]
    exist = self.at_once(lambda at: self._is_object(path, at), empty)
    for at, exists in zip(empty, exist, strict=True):
      if not exists:
        del found[at.key]
    return list(found.values())

  def _is_object(self, folder: UrlPath, at: Found) -> bool:
    """Whether an empty object exists by its key; otherwise it is a folder marker, KEY and "/"."""
    with contextlib.suppress(FileNotFoundError):
      self.stat(UrlPath(f"{folder.scheme}://{folder.parts[1]}/{at.key}"))
      return True
    return False

  def in_folder(self, path: UrlPath) -> tuple[list[Found], list[str]]:
    """The objects in a folder, and the keys of the folders in it."""
    _, key = place(path)
    answer = self._of_bucket(path, lambda store: obstore.list_with_delimiter(store, key or None))
    if "" in answer["common_prefixes"]:
      error = ValueError('path "/"')
      raise as_os_error(error, Reason.NO_PATH, str(path), self._service.who)
    found = map(_found, answer["objects"])
    return [at for at in found if at.key != key], answer["common_prefixes"]

  def anything_in(self, path: UrlPath) -> bool:
    """Whether a folder has anything in it."""
    _, key = place(path)

    def ask(store):
      return next(iter(obstore.list(store, key or None)), [])

    return bool(self._of_bucket(path, ask))

  def _of_bucket(self, path: UrlPath, ask: Callable[[ObjectStore], Answer]) -> Answer:
    """Like `request`, for listings and writes, which find nothing only if the bucket is missing."""
    try:
      return self.request(path, ask, retries=RETRIES)
    except FileNotFoundError as error:
      raise as_os_error(error, Reason.NO_BUCKET, str(path), self._service.who) from error

  def delete(self, path: UrlPath, key: str = ""):
    """Deletes the object at a path, or at a key in its bucket, if there is one."""
    with contextlib.suppress(FileNotFoundError):
      self.request(path, lambda store: obstore.delete(store, key or place(path)[1]))

  def delete_all(self, path: UrlPath, found: Iterable[Found]):
    """Deletes objects in the bucket of `path`."""
    self.at_once(lambda at: self.delete(path, at.key), found)

  def at_once(self, ask: Callable[[Item], Answer], items: Iterable[Item]) -> list[Answer]:
    """Calls `ask` for each item in several threads, and returns the results in order."""
    with concurrent.futures.ThreadPoolExecutor(WORKERS, "bucket") as pool:
      return list(pool.map(ask, items))

  def upload(self, path: UrlPath, content: pathlib.Path | bytes | bytearray):
    """Writes an object with these bytes, or those of a file of this machine; many in parts."""
    size = content.stat().st_size if isinstance(content, pathlib.Path) else len(content)
    _, key = place(path)
    # Few parts at once, so that each is sent within the timeout on a slow connection too.
    options = dict(use_multipart=size >= IN_PARTS, max_concurrency=4)
    self._of_bucket(path, lambda store: obstore.put(store, key, content, **options))

  def copy(self, path: UrlPath, key: str, target: str):
    """Copies an object within the bucket of `path`."""
    self.request(path, lambda store: obstore.copy(store, key, target))


class _CutShortError(Exception):
  """An answer has too few bytes."""


def _mode(expected: Found | None):
  if expected is None:
    return "overwrite"
  if expected == NEW:
    return "create"
  known = {"e_tag": f'"{expected.e_tag}"', "version": expected.generation}
  return {name: value for name, value in known.items() if value}


def _found(meta) -> Found:
  """An object from obstore's metadata; only some services quote the ETag in listings."""
  if not meta["e_tag"]:
    raise ConfigError(f"The server gives no ETag of {meta['path']!r}, so a change is not seen.")
  e_tag = meta["e_tag"].strip('"')
  return Found(meta["path"], meta["size"], e_tag, meta["version"] or "")


def place(path) -> tuple[str, str]:
  """The bucket and the key of a path."""
  _, bucket, *keys = path.parts
  return bucket, "/".join(keys)
