"""Few hostile cases in every test run, many of the same kinds with --torture."""

from tests.faults.conftest import uninterrupted  # noqa: F401 - a fixture


def pytest_generate_tests(metafunc):
  """One test for each case that its module generates.

  Such a module has `CASES`, (few, many), and `cases(count)`, which lists pairs of a name and
  whatever its tests take as `case`; the first few of many are the few.
  """
  if "case" not in metafunc.fixturenames:
    return
  few, many = metafunc.module.CASES
  found = metafunc.module.cases(many if metafunc.config.getoption("--torture") else few)
  metafunc.parametrize("case", [case for _, case in found], ids=[name for name, _ in found])
