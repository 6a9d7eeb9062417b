"""What forbids a run is said before it starts, not in the middle of a library."""

import pathlib
import sys
import threading

import pytest

from vit_jax.process import machine
from vit_jax.storage import saving
from vit_jax.storage.paths import path_of

LONG = ["a" * 256, f"x/{'ß' * 128}/y", "/" + "a/" * 2000, f"gs://b/{'a/' * 400}"]


@pytest.mark.parametrize("path", [*LONG, "gs://b/" + "a" * 256])
def test_a_name_that_is_too_long_is_one_sentence(path):
  assert "... is too long: each name in it may have 255 bytes" in machine.refusal(path_of(path))


@pytest.mark.parametrize("path", ["workdirs/Größe", f"{'a' * 255}/{'b' * 255}"])
def test_nothing_forbids_a_run_here(path):
  before = threading.active_count()
  assert not machine.refusal(path_of(path))
  assert threading.active_count() == before


def test_too_few_threads(monkeypatch):
  start, left = threading.Thread.start, iter(range(5))

  def limited(thread):
    if next(left, None) is None:
      raise RuntimeError("can't start new thread")
    start(thread)

  monkeypatch.setattr(threading.Thread, "start", limited)
  said = machine.refusal(pathlib.Path("run"))
  assert said.startswith("This process may start only 5 threads")
  assert "ulimit -u" in said


def test_a_folder_that_the_locale_cannot_write(monkeypatch):
  monkeypatch.setattr(sys, "getfilesystemencoding", lambda: "ascii")
  assert "LC_ALL=C.UTF-8" in machine.refusal(pathlib.Path("Gr\udcc3\udcb6sse"))
  assert not machine.refusal(pathlib.Path("run"))


def test_an_error_of_a_limit_names_the_limits():
  for error in (MemoryError(), RuntimeError("x: can't start new thread")):
    assert machine.exhausted(error).startswith("This process gets no more memory or threads (")
    assert saving.reason_of(error).startswith("This process gets no more memory or threads (")
  assert not machine.exhausted(RuntimeError("RESOURCE_EXHAUSTED: Out of memory"))
