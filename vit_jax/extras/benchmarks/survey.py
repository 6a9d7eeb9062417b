"""Tries batches until the largest one of each case is known; results.csv is the only memory."""

import dataclasses
import pathlib
import sys
from collections.abc import Callable, Mapping

from vit_jax.config import ConfigError
from vit_jax.extras.benchmarks.case import Case
from vit_jax.extras.experiments.studies import results
from vit_jax.storage import files, workdir

RESULTS = "results.csv"


@dataclasses.dataclass(frozen=True)
class Survey:
  """Trials on one kind of device, in a folder.

  Attributes:
    folder: holds results.csv.
    device: what is measured, in words.
    first: the batch to begin with.
    run: (case, batch) -> fits and seconds, or an error.
  """

  folder: pathlib.Path
  device: str
  first: int
  run: Callable[[Case, int], dict]

  def trials(self) -> list[dict[str, str]]:
    """The trials that are done, as text.

    Raises:
      ConfigError: they are of another device.
      RunError: results.csv is damaged.
    """
    rows = results.read_rows(self.folder / RESULTS)
    others = {row.get("device", "something else") for row in rows} - {self.device}
    if others:
      raise ConfigError(
        f"{self.folder / RESULTS} has results of {min(others)}, and these would be of "
        f"{self.device}; give another --workdir."
      )
    return rows

  def do(self, cases: list[Case]) -> list[str]:
    """Makes the trials that are missing, and writes each as it ends.

    Returns:
      A sentence for each case that failed for another reason than memory.

    Raises:
      ConfigError: another survey writes there.
      RunError: the folder cannot be written to.
    """
    with workdir.writing(self.folder):  # before the first trial, which may take minutes
      files.make_folder(self.folder)
    with files.one_writer(self.folder / RESULTS):
      return [failure for case in cases if (failure := self._do_case(case))]

  def _do_case(self, case):
    """Returns a sentence if a trial fails."""
    while batch := self._next(case):
      outcome = self.run(case, batch)
      name = f"{case.model}, {case.image_size} px, {case.what}, {batch} images"
      if "error" in outcome:
        return f"{name} failed: {outcome['error']}."
      row = self._row(case, batch, outcome)
      with workdir.writing(self.folder):
        results.write(self.folder / RESULTS, [*self.trials(), row])
      figure = "does not fit"
      if row["fits"]:
        figure = f"{row['images_per_second']:.4g} images/s"
      print(f"{name}: {figure}", file=sys.stderr, flush=True)
    return ""

  def _next(self, case):
    return next_batch(fits(of_case(self.trials(), case)), self.first)

  def _row(self, case, batch, outcome):
    row = dict(
      device=self.device,
      **dataclasses.asdict(case),
      batch=batch,
      fits=outcome["fits"],
      seconds="",
      images_per_second="",
      gflops=case.gflops(),
    )
    seconds = outcome["seconds"]
    if seconds is not None:
      row |= dict(seconds=seconds, images_per_second=batch / seconds)
    return row


def of_case(trials: list[dict[str, str]], case: Case) -> list[dict[str, str]]:
  """The trials of a case."""
  columns = {key: str(value) for key, value in dataclasses.asdict(case).items()}
  return [row for row in trials if columns.items() <= row.items()]


def fits(trials: list[dict[str, str]]) -> dict[int, bool]:
  """The batches of some trials of one case, and whether they fit."""
  return {int(row["batch"]): row["fits"] == "True" for row in trials}


def next_batch(fits: Mapping[int, bool], first: int) -> int | None:
  """The batch to try next; None if the largest one that fits is known.

  Args:
    fits: the batches that were tried, and whether they fit.
    first: the batch to begin with, a power of two.
  """
  if not fits:
    return first
  fitting = [batch for batch, fit in fits.items() if fit]
  if fitting:
    twice = 2 * max(fitting)
    if twice in fits:
      return None
    return twice
  return min(fits) // 2 or None


def largest(fits: Mapping[int, bool]) -> int | None:
  """The largest batch that fits, 0 if not even one image does; None if that is not known yet."""
  if not fits or next_batch(fits, first=1):
    return None
  return max((batch for batch, fit in fits.items() if fit), default=0)
