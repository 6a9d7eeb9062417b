"""Commands of the small digits run with a fault in it."""

import sys

from tests import programs

COMMON = ["--config.optimizer.ema=0.9", "--config.model.dropout=0.1"]


def command(fault, workdir, *overrides):
  """The run that tests/faults/driver.py harms."""
  flags = programs.digits(workdir, *COMMON, *overrides)[len(programs.MAIN) :]
  return [sys.executable, "-m", "tests.faults.driver", fault, *flags]


def run(fault, workdir, *overrides, anew=False):
  """That run, to its end."""
  return programs.run(command(fault, workdir, *overrides), timeout=100, anew=anew)


def resume(workdir, *overrides):
  """The same command again, and nothing wrong any more; returns what it printed."""
  result = programs.run(programs.digits(workdir, *COMMON, *overrides))
  assert result.returncode == 0, result.stdout + result.stderr
  return result.stdout
