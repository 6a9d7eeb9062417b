"""Batches are decoded ahead of the consumer, and a program can end with open batches."""

import subprocess
import sys
import textwrap
import time

import pytest

from tests.data.numbered import TRAIN, Listed, jpegs
from vit_jax.data import pipeline


def test_decoding_runs_ahead_of_the_consumer():
  read = []

  class Watched(Listed):
    def __getitem__(self, index):
      read.append(index)
      return super().__getitem__(index)

  batches = pipeline.train_batches(
    Watched(jpegs(30)._examples),
    transform=TRAIN,
    seed=0,
    batch_size=16,
    host=0,
    hosts=1,
    start=0,
    threads=2,
  )
  next(batches)
  deadline = time.monotonic() + 10
  while len(read) < 3 * 16 and time.monotonic() < deadline:
    time.sleep(0.01)
  time.sleep(0.2)
  batches.close()
  assert len(read) >= 3 * 16
  assert len(read) <= 6 * 16  # but not without end


@pytest.mark.parametrize("end", ["", "raise SystemExit(3)"])
def test_the_program_ends_with_batches_open(end):
  """The program ends if the iterator is closed, forgotten, or left by an exception."""
  program = f"""
    import functools
    from vit_jax.data import images, pipeline, sources

    if __name__ == "__main__":
      batches = pipeline.train_batches(
        sources.open_source("synthetic:10"),
        transform=functools.partial(
          images.train_image, size=32, area=(0.05, 1), aspect=(0.75, 1.33), flip=True,
          max_pixels=10**6),
        seed=0, batch_size=64, host=0, hosts=1, start=0, threads=2)
      next(batches)
      print("got one", flush=True)
      {end}
  """
  done = subprocess.run(
    [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60
  )
  assert done.stdout == "got one\n", done.stderr
  assert done.returncode == (3 if "SystemExit" in end else 0), done.stderr
