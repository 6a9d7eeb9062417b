"""A part of the tests for a second environment: what the first skipped, and a fifth of the rest.

    pytest --write-skipped=FILE          in an environment without extras
    pytest --skipped=FILE --fifth=3      in one with all of them

The fifth is of files, so that fixtures are shared as always; `--fifth` of 0 to 4 rotates.
"""

import pathlib

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


def pytest_collection_modifyitems(config, items):
  """Leaves out what neither the file names nor the fifth holds."""
  path = config.getoption("--skipped")
  if not path:
    return
  named = set(pathlib.Path(path).read_text(encoding="utf-8").splitlines())
  fifth = part(sorted({_file(item) for item in items}), config.getoption("--fifth"))
  chosen = [item for item in items if {item.nodeid, _file(item)} & named or _file(item) in fifth]
  config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
  items[:] = chosen


def part(files: list[str], number: int) -> set[str]:
  """Every fifth of the files, from the one with that number."""
  return set(files[number::PARTS])


def _file(item) -> str:
  return item.nodeid.partition("::")[0]
