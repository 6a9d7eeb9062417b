"""A part of the tests for a second environment: what the first skipped, and a fifth of the rest.

    pytest --write-skipped=FILE          in an environment without extras
    pytest --skipped=FILE --fifth=3      in one with all of them

The fifth is of files, so that fixtures are shared as always; `--fifth` of 0 to 4 rotates.
"""

import functools
import pathlib
from typing import NamedTuple

PARTS = 5


def pytest_addoption(parser):
  """The options that choose tests."""
  add = parser.addoption
  add("--write-skipped", metavar="FILE", help="write the names of the skipped tests to FILE")
  add("--skipped", metavar="FILE", help="run the tests that FILE names, beside --fifth")
  add("--fifth", type=int, help="0 to 4: with --skipped, which fifth of the other files to run")


def pytest_configure(config):
  """Notes what is skipped, in the process that hears of all tests."""
  path = config.getoption("--write-skipped")
  if path and not hasattr(config, "workerinput"):
    config.pluginmanager.register(Skipped(pathlib.Path(path)))


class Skipped:
  """Writes the names of the skipped tests, and of files that are skipped whole."""

  def __init__(self, path: pathlib.Path):
    self._path, self._names = path, set()

  def pytest_runtest_logreport(self, report):
    """A test, while it is set up or runs."""
    self._note(report)

  def pytest_collectreport(self, report):
    """A file, while it is imported."""
    self._note(report)

  def pytest_sessionfinish(self):
    """Writes a name a line."""
    self._path.write_text("".join(f"{name}\n" for name in sorted(self._names)), encoding="utf-8")

  def _note(self, report):
    if report.skipped:
      self._names.add(report.nodeid)


def pytest_ignore_collect(collection_path, config):
  """Leaves out files of tests of which nothing is chosen, before they are imported."""
  chosen = chosen_of(config)
  if not chosen or not collection_path.match("test_*.py"):
    return None
  file = _below_root(collection_path, config)
  return None if file in chosen.fifth or file in map(_file, chosen.named) else True


def pytest_collection_modifyitems(config, items):
  """Leaves out what neither the file names nor the fifth holds."""
  chosen = chosen_of(config)
  if not chosen:
    return
  is_kept = lambda item, file: {item.nodeid, file} & chosen.named or file in chosen.fifth
  kept = [item for item in items if is_kept(item, _file(item.nodeid))]
  config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
  items[:] = kept


class Chosen(NamedTuple):
  """What is run.

  Attributes:
    named: tests and files.
    fifth: the files of which all is run.
  """

  named: frozenset[str]
  fifth: frozenset[str]


@functools.cache
def chosen_of(config) -> Chosen | None:
  """What the options choose; None: everything."""
  path = config.getoption("--skipped")
  if not path:
    return None
  named = pathlib.Path(path).read_text(encoding="utf-8").splitlines()
  files = (config.rootpath / "tests").rglob("test_*.py")
  files = sorted(_below_root(file, config) for file in files)
  return Chosen(frozenset(named), part(files, config.getoption("--fifth")))


def part(files: list[str], number: int) -> frozenset[str]:
  """Every fifth of the files, from the one with that number."""
  return frozenset(files[number::PARTS])


def _file(name: str) -> str:
  return name.partition("::")[0]


def _below_root(path: pathlib.Path, config) -> str:
  return path.relative_to(config.rootpath).as_posix()
