"""The page on scale: its goodput against a simulation, its writes against a run's."""

import re

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from tests import programs
from tests.learning import steps
from tools import scale
from vit_jax.storage import arrays


def simulated(interval, *, blocked, restart, between, saves=200_000):
  """The goodput of so many saves, failure by failure."""
  rng = np.random.default_rng(0)
  spent = done = 0.0
  until_failure = rng.exponential(between)
  while done < saves * interval:
    needed = interval + blocked
    while until_failure < needed:
      spent += until_failure
      needed = restart + interval + blocked
      until_failure = rng.exponential(between)
    until_failure -= needed
    spent += needed
    done += interval
  return done / spent


@pytest.mark.parametrize(
  ("interval", "options"),
  [
    (500.0, dict(blocked=10.0, restart=600.0, between=3600.0)),
    (4000.0, dict(blocked=1.0, restart=60.0, between=3600.0)),
  ],
)
def test_goodput_against_a_simulation(interval, options):
  expected = simulated(interval, **options, saves=30_000)
  assert scale.goodput(interval, **options) == pytest.approx(expected, rel=0.02)


def test_the_best_interval_is_the_best():
  rare = dict(blocked=2.0, between=100_000.0)
  best = scale.best_interval(**rare)
  found = [scale.goodput(best * factor, restart=300.0, **rare) for factor in (0.8, 1, 1.25)]
  assert max(found) == found[1]


@pytest.mark.parametrize("processes", [1, 2, 4])
def test_writes_are_what_a_run_writes(monkeypatch, processes):
  """The pieces that `arrays.shares` takes from each device."""
  monkeypatch.setattr(arrays, "SPLIT", 2**10)
  monkeypatch.setattr(jax, "process_count", lambda: processes)
  mesh = steps.mesh_of(2, 4)
  found = {
    name: jax.device_put(np.zeros(shape, np.float32), NamedSharding(mesh, PartitionSpec(*of)))
    for name, shape, of in (
      ("a", (64, 64), ("fsdp",)),
      ("b", (512, 8), ()),
      ("c", (3,), ()),
    )
  }
  planned = {name: scale.Array(x.shape, x.dtype, x.sharding) for name, x in found.items()}
  wanted = scale.writes(planned, processes)
  assert wanted.total == sum(x.nbytes for x in found.values())
  plans = arrays.plans(found)
  per_process = np.zeros(processes, int)
  for name, x in found.items():
    for _, piece in arrays._mine(x, plans[name]):
      (device,) = piece.devices()
      per_process[device.id * processes // 8] += piece.nbytes
  assert wanted.largest == per_process.max()
  assert per_process.sum() == wanted.total


def test_the_page_is_that_of_the_formulas():
  """The writes, which are planned for 2,048 devices, are the page's own: planning takes long."""
  text = (programs.ROOT / "docs/scale.md").read_text(encoding="utf-8")
  number = lambda pattern: float(re.search(pattern, text)[1].replace(",", ""))
  total, largest = number(r"A checkpoint has ([\d.]+) GB"), number(r"at most ([\d,]+) MB, in")
  pieces = int(number(r"into ([\d,]+) pieces"))
  found = scale.Writes(int(total * 1e9), int(largest * 1e6), pieces)
  assert scale.page(found) == text, "run: python tools/scale.py --output docs/scale.md"
