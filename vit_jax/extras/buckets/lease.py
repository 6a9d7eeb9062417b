"""A lock in a bucket: an object that its holder rewrites every few seconds.

No operating system frees it. Another process takes it over if the holder has not written it for
`SECONDS`, or at once if the holder was a process of this machine and is gone. Each write expects
the object that the holder wrote last, so a holder that was replaced notices that it lost the lock.
"""

import contextlib
import json
import logging
import os
import pathlib
import secrets
import threading
import time

from vit_jax.extras.buckets.client import NEW, Found

SECONDS = 60  # without a sign of life, after which a holder counts as dead
RENEW = 4  # seconds between two writes
LOOK = 1  # seconds between two polls of a waiting process


class Lease:
  """A lock that this process holds, or wants; `base.Lock`."""

  def __init__(self, bucket, path):
    """Makes no request; `bucket` is the `Client` of its service."""
    self._bucket = bucket
    self._path = path
    self._token = secrets.token_hex(8)
    self._written = 0  # number of writes
    self._last = NEW  # the object that was written last
    self._writing = threading.Lock()
    self._end = threading.Event()
    self._lost = False
    self._renewed = 0.0  # when it was written last
    self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)

  def take(self):
    """Takes the lock, also from a dead holder, for which it waits as long as needed.

    Raises:
      BlockingIOError: another process holds it.
    """
    try:
      self._write(NEW)
    except FileExistsError:
      self._take_over()
    self._thread.start()

  def is_held(self) -> bool:
    """Whether a living process holds the lock; if there is one, it is watched for a renewal."""
    content, found = self._there()
    if found == NEW or _is_gone(content):
      return False
    time.sleep(RENEW + LOOK)
    return self._there()[1] not in (NEW, found)

  def _take_over(self):
    known = None
    told = False
    since = time.monotonic()
    while True:
      content, found = self._there()
      if NEW not in (known, found) and known not in (None, found):
        raise self._held_by_another()
      known = found
      waited = time.monotonic() - since
      if waited > 2 * RENEW and not told:
        told = True
        logging.warning(
          "The holder of %s gives no sign of life; its lock is taken over after %d s without one.",
          self._path,
          SECONDS,
        )
      if found == NEW or waited >= SECONDS or _is_gone(content):
        try:
          self._write(found)
          return
        except FileExistsError as error:
          raise self._held_by_another() from error
      time.sleep(LOOK)

  def _there(self) -> tuple[dict, Found]:
    """The content of the lock, and its object; `NEW` if there is none."""
    try:
      found = self._bucket.stat(self._path)
    except FileNotFoundError:
      return {}, NEW
    try:
      content = self._bucket.read(self._path, found, 0, found.size)
    except (FileNotFoundError, FileExistsError):  # it was written or freed meanwhile
      return self._there()
    with contextlib.suppress(ValueError):
      said = json.loads(content)
      if isinstance(said, dict):
        return said, found
    return {}, found

  def _held_by_another(self):
    return BlockingIOError(11, "Another process holds the lock", str(self._path))

  def _write(self, expected):
    self._written += 1
    said = {"holder": self._token, "written": self._written, **_this_process()}
    self._last = self._bucket.write(self._path, json.dumps(said).encode(), expected)
    self._renewed = time.monotonic()

  def _keep(self):
    while not self._end.wait(RENEW) and not self._lost:
      with contextlib.suppress(OSError):  # retried at the next turn
        self._renew()

  def _renew(self):
    with self._writing:
      if self._end.is_set() or self._lost:
        return
      try:
        self._write(self._last)
      except FileExistsError:
        said, found = self._there()
        if said.get("holder") == self._token:  # it was written, and no answer came
          self._last = found
        else:
          self._lost = True

  def held(self) -> bool:
    """Whether this process still holds the lock."""
    if time.monotonic() - self._renewed > 3 * RENEW:  # this process slept, or the network is gone
      self._renew()
    return not self._lost

  def close(self):
    """Frees the lock."""
    self._end.set()
    with self._writing, contextlib.suppress(OSError):
      if not self._lost and self._bucket.stat(self._path) == self._last:
        self._bucket.delete(self._path)


def _this_process() -> dict:
  return {"machine": _machine(), "process": os.getpid(), "started": _started(os.getpid())}


def _is_gone(said: dict) -> bool:
  """Whether a holder was a process of this machine and has ended."""
  process = said.get("process")
  if not _machine() or said.get("machine") != _machine() or not isinstance(process, int):
    return False
  return _started(process) != said.get("started")


def _machine() -> str:
  """Identifies this boot of this machine and the PID namespace; "" if not known."""
  try:
    boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot} {os.stat('/proc/self/ns/pid').st_ino}"
  except OSError:
    return ""


def _started(process: int) -> str:
  """When a process started, in the kernel's ticks; "" if it has ended."""
  try:
    fields = pathlib.Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace")
  except OSError:
    return ""
  state, *rest = fields.rpartition(")")[2].split()
  if state in "ZX":
    return ""
  return rest[18]
