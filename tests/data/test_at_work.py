"""The image that holds up a run is named when the watchdog ends it. A real process."""

import sys

from tests import programs

PROGRAM = """
import pathlib, sys, time
from tests.data.numbered import layout, whole
from vit_jax.data import pipeline, sources
from vit_jax.devices.watchdog import Watchdog

def prepared(image, rng=None):
  if image == b"slow":
    time.sleep(60)
  return whole(__import__("numpy").zeros((1, 1, 3), "uint8"))

folder = pathlib.Path(sys.argv[1])
source = sources.open_source(f"folder:{folder}/images", split="")
options = dict(seed=0, batch_size=2, host=0, hosts=1, start=0, threads=3)
with Watchdog(folder, limit=2, silence=0, process=0, processes=1) as dog:
  options["layout"] = layout(source, prepared, 1)
  for step, _ in enumerate(pipeline.train_batches(source, **options)):
    dog.beat(f"step {step}")
"""


def test_the_image_that_takes_too_long_is_named(tmp_path):
  for name in ("a/1.jpg", "a/2.jpg", "b/3.jpg", "b/4.jpg"):
    (tmp_path / "images" / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "images" / name).write_text("slow" if "3" in name else "quick")
  result = programs.run([sys.executable, "-c", PROGRAM, tmp_path], timeout=60)
  assert result.returncode == 1
  head, *lines = result.stderr.partition("Images in work; ")[2].splitlines()
  assert head == "remove one that is here again after the next start:"
  assert lines
  assert all(f"  {tmp_path}/images/b/3.jpg has been read or decoded for " in one for one in lines)
