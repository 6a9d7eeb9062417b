"""The image that holds up a run is named when the watchdog ends it. Real processes."""

import sys

import pytest

from tests import programs

PROGRAM = """
import pathlib, sys, time
from vit_jax.data import pipeline, sources
from vit_jax.devices.watchdog import Watchdog

def prepared(image, rng=None):
  if image == b"slow":
    time.sleep(60)
  return __import__("numpy").zeros((1, 1, 3), "uint8")

folder, mode = pathlib.Path(sys.argv[1]), sys.argv[2]
source = sources.open_source(f"folder:{folder}/images", split="")
common = dict(transform=prepared, batch_size=2, host=0, hosts=1)
with Watchdog(folder, limit=2, silence=0, process=0, processes=1) as dog:
  if mode == "train":
    batches = pipeline.train_batches(
      source, seed=0, start=0, threads=3, **common
    )
  else:
    batches = pipeline.evaluate_batches(source, threads=int(mode), **common)
  for step, batch in enumerate(batches):
    dog.beat(f"step {step}")
"""


@pytest.mark.parametrize("mode", ["train", "0"])
def test_the_image_that_takes_too_long_is_named(tmp_path, mode):
  for name in ("a/1.jpg", "a/2.jpg", "b/3.jpg", "b/4.jpg"):
    (tmp_path / "images" / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "images" / name).write_text("slow" if "3" in name else "quick")
  result = programs.run([sys.executable, "-c", PROGRAM, tmp_path, mode], timeout=60)
  assert result.returncode == 1
  head, *lines = result.stderr.partition("Images in work; ")[2].splitlines()
  assert head == "remove one that is here again after the next start:"
  assert lines
  assert all(f"  {tmp_path}/images/b/3.jpg has been read or decoded for " in one for one in lines)
