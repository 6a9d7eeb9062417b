"""Runs tests on a mutant, in a fork of a process that has imported what all of them import."""

import contextlib
import gc
import importlib
import importlib.machinery
import importlib.util
import os
import pathlib
import resource
import select
import signal
import sys
from typing import NamedTuple

import hypothesis
import pytest

from tests import programs

SURVIVED, FAILED = 0, 1  # exit statuses of pytest; others are of tests that cannot be imported
MAX_SECONDS = 1800  # seconds by the clock; a mutant may wait for ever
MEMORY = 2**34  # bytes of addresses

SLOW = (
  "clu.parameter_overview",
  "flax.linen",
  "matplotlib.backends.backend_agg",
  "matplotlib.figure",
  "optax",
  "scipy.ndimage",
  "sklearn.datasets",
  "sklearn.model_selection",
  "tensorflow_datasets",
  "tensorstore",
)


class Result(NamedTuple):
  """How the tests ended: the exit status, negative for a signal; and seconds that they computed."""

  status: int
  seconds: float


class Loader(importlib.machinery.SourceFileLoader):
  """Loads a module from other source than its file's."""

  def __init__(self, name: str, path: str, code: str):
    super().__init__(name, path)
    self._code = code

  def get_code(self, fullname):
    return compile(self._code, self.path, "exec")


class Overlay:
  """A finder of modules that knows one of them."""

  def __init__(self, name: str, path: pathlib.Path, code: str):
    self.name, self._path, self._code = name, str(path), code

  def find_spec(self, name, path=None, target=None):
    if name != self.name:
      return None
    loader = Loader(name, self._path, self._code)
    return importlib.util.spec_from_file_location(name, self._path, loader=loader)


class AsGiven:
  """Makes pytest run the files in the order of the command line."""

  def __init__(self, tests: list[str]):
    files = [test.partition("::")[0] for test in tests]
    self._places = {programs.ROOT / file: i for i, file in enumerate(files)}

  @pytest.hookimpl(trylast=True)
  def pytest_collection_modifyitems(self, items):
    items.sort(key=lambda item: self._places[item.path])


def prepare():
  """Imports what is slow to import; JAX with the settings of the tests, and nothing of vit_jax."""
  for name in ("tests.conftest", *SLOW):
    importlib.import_module(name)
  gc.freeze()


def run(overlay: Overlay | None, tests: list[str], seconds: int, log: pathlib.Path) -> Result:
  """Runs tests until one fails.

  Args:
    overlay: the changed module; None: none is changed.
    tests: their files or names.
    seconds: that they may compute for.
    log: file for what they print.

  Raises:
    RuntimeError: the module is imported already, so the tests would not see its change.
  """
  if overlay and overlay.name in sys.modules:
    raise RuntimeError(f"{overlay.name} is imported before the tests, so it cannot be mutated.")
  child = os.fork()
  if not child:
    status = FAILED
    try:
      status = tried(overlay, tests, seconds, log)
    finally:
      os._exit(status)
  with contextlib.closing(os.fdopen(os.pidfd_open(child))) as ended:
    try:
      select.select([ended], [], [], MAX_SECONDS)
    finally:
      with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
      _, status, used = os.wait4(child, 0)
  return Result(os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime)


def tried(overlay: Overlay | None, tests: list[str], seconds: int, log: pathlib.Path) -> int:
  """The exit status of pytest; for a process of its own."""
  os.setsid()
  with log.open("w") as output:
    os.dup2(output.fileno(), 1)
    os.dup2(output.fileno(), 2)
  resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
  resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
  # Neither what hypothesis remembers of earlier mutants, nor the smallest example, is of use.
  phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
  hypothesis.settings.register_profile(
    "mutant", deadline=None, database=None, derandomize=True, phases=phases
  )
  if overlay:
    sys.meta_path.insert(0, overlay)
  temporary = f"--basetemp={log.with_suffix('')}"
  profile = "--hypothesis-profile=mutant"
  plain = ["-x", profile, "--assert=plain", "-p", "no:cacheprovider", "--tb=short", temporary]
  return pytest.main([*plain, *tests], plugins=[AsGiven(tests)])
