"""Several writers at once, with a disk that is slow where files become visible."""

import concurrent.futures
import os
import random
import threading
import time

SLOW = ("fsync", "replace", "rename", "link")


def slow_disk(monkeypatch, seconds=0.05):
  """From now on each of the calls `SLOW` begins, and ends, up to `seconds` late."""
  drawn = random.Random(0)
  for name in SLOW:
    monkeypatch.setattr(os, name, late(getattr(os, name), lambda: drawn.uniform(0, seconds)))


def late(function, seconds):
  """The function, with a pause before and after."""

  def called(*args, **kwargs):
    time.sleep(seconds())
    try:
      return function(*args, **kwargs)
    finally:
      time.sleep(seconds())

  return called


def at_once(*functions):
  """Calls functions at the same moment; returns the results, or the errors that they raised."""
  start = threading.Barrier(len(functions))

  def call(function):
    start.wait()
    try:
      return function()
    except Exception as error:
      return error

  with concurrent.futures.ThreadPoolExecutor(len(functions)) as pool:
    return list(pool.map(call, functions))
