"""Several evaluations of one workdir at once, while a run and a reader use it."""

import json
import threading

import numpy as np
from PIL import Image

from tests.racing import at_once, slow_disk
from vit_jax.devices import watchdog
from vit_jax.evaluation import results
from vit_jax.evaluation.spec import Result
from vit_jax.extras.report import scored_set
from vit_jax.storage import workdir


def result(number):
  """A result whose metric, table and picture all tell its number."""

  def write(folder):
    (folder / "classes.csv").write_text(f"class,images,right,accuracy\ncat,255,{number},\n")

  picture = np.full((4, 4, 3), number, np.uint8)
  return [("test", Result({"top1": number}, write, {"patches": picture}))]


def numbers(folder):
  """The numbers that metrics, table and picture of the newest evaluation tell."""
  sets, wrong = scored_set.read_all(folder)
  assert not wrong
  for one in sets:
    with Image.open(one.pictures["patches"]) as picture:
      yield one.metrics["top1"], one.classes[0][2], picture.getpixel((0, 0))[0]


def test_readers_see_metrics_with_their_own_details(tmp_path, monkeypatch):
  slow_disk(monkeypatch)
  written, seen = threading.Event(), set()

  def read():
    while not written.is_set():
      seen.update(numbers(tmp_path))

  reader = threading.Thread(target=read)
  reader.start()
  write = lambda number: results.write_details(tmp_path, result(number), {"step": number})
  folders = at_once(*(lambda number=number: write(number) for number in range(1, 9)))
  written.set()
  reader.join()
  assert {path.relative_to(tmp_path / "evaluation").as_posix() for path in folders} == set(
    "12345678"
  )
  assert seen
  assert {len(set(told)) for told in seen} == {1}
  for number, path in enumerate(folders, 1):
    assert json.loads((path / "test/metrics.json").read_text())["step"] == number
  assert workdir.details(tmp_path)[0] == tmp_path / "evaluation/8/test"


def test_an_evaluation_leaves_the_heartbeats_of_a_run(tmp_path):
  beat = tmp_path / "heartbeats/0"
  beat.parent.mkdir()
  beat.write_text("of a pod")
  with watchdog.of_evaluation(60, tmp_path):
    pass
  assert beat.read_text() == "of a pod"
