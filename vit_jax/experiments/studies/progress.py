"""One line of progress over all runs of a study."""

import collections
import sys
import time
from collections.abc import Callable, Mapping

from vit_jax.experiments.studies.cost import Cost
from vit_jax.experiments.studies.jobs import Job
from vit_jax.experiments.studies.ledger import Ledger
from vit_jax.storage import metrics_log


class Progress:
  """Says how much is done, measured in FLOPs, and how long the rest will take at this speed."""

  def __init__(self, ledger: Ledger, some: list[Job], costs: Mapping[str, Cost], *, clock=None):
    """Starts the clock. Runs whose length is not known count as one step."""
    self._ledger, self._jobs, self._costs = ledger, some, costs
    self._clock: Callable[[], float] = clock or time.monotonic
    self._began, self._before = self._clock(), self._work()
    self._live = sys.stderr.isatty()

  def _work(self):
    """(work done, all work), in exaFLOPs."""
    done = total = 0.0
    for job in self._jobs:
      cost = self._costs[repr(job)]
      work = cost.exaflops(cost.steps or 1)
      total += work
      done += work * self._share(job, cost.steps or 1)
    return done, total

  def _share(self, job, steps):
    run = self._ledger.run(job)
    if run is None:
      return 0.0
    if self._ledger.done(job):
      return 1.0
    lines = collections.deque(metrics_log.read(run.folder), maxlen=1)
    return min(lines[0]["step"] / steps, 1.0) if lines else 0.0

  def line(self, *, under_way: int, failed: int) -> str:
    """Such as "12 of 24 runs done, 1 under way, 51.2%, ETA 0:21:07"."""
    done = sum(self._ledger.done(job) is not None for job in self._jobs)
    work, total = self._work()
    parts = [f"{done} of {len(self._jobs)} runs done"]
    parts += [f"{failed} failed"] * bool(failed) + [f"{under_way} under way"]
    parts.append(f"{work / total:.1%}" if total else "100%")
    spent = work - self._before[0]
    if spent > 0:
      seconds = (total - work) / spent * (self._clock() - self._began)
      parts.append(f"ETA {metrics_log.clock(seconds)}")
    return ", ".join(parts)

  def show(self, **counts: int):
    """Prints the line; on a terminal it replaces the previous one."""
    line = self.line(**counts)
    print(
      f"\r{line}\x1b[K" if self._live else line, end="" if self._live else "\n", file=sys.stderr
    )
    sys.stderr.flush()

  def say(self, line: str):
    """Prints a line that stays."""
    print(f"\r\x1b[K{line}" if self._live else line, file=sys.stderr, flush=True)
