"""Two commands write to one place at once, on a slow disk: what is there is of one of them.

Each case is a function that makes two writers and returns them with `owner`, which reads the place
back, and tells whose all of it is.
"""

import contextlib
import csv
import os
import threading
import types

import numpy as np
import pytest

from tests.data.made_sets import contents, folder, made, opened, write_images
from tests.data.numbered import jpegs
from tests.racing import at_once, slow_disk
from vit_jax import models, weights
from vit_jax.config import ConfigError
from vit_jax.extras import prepared_cache as cache
from vit_jax.extras.benchmarks import survey
from vit_jax.extras.benchmarks.case import Case
from vit_jax.extras.duplicates import find
from vit_jax.storage import files
from vit_jax.weights.card import Card

CASE = Case("inference", "ViT-B/16", 224)


def caches(place, monkeypatch):
  monkeypatch.setattr(cache, "_FILE", 8)
  sources, options = [jpegs(30), jpegs(20)], dict(side=40, max_pixels=10**6)

  def write(source):
    return lambda: cache.prepare(source, str(place), threads=2, **options)

  def owner():
    readable = []
    for number, source in enumerate(sources):
      with contextlib.suppress(ConfigError):
        found = cache.Cached(source, str(place), **options)
        assert [found[i].name for i in range(len(source))] == [
          source[i].name for i in range(len(source))
        ]
        readable.append(number)
    return readable[0]

  return [write(source) for source in sources], owner


def datasets(place, monkeypatch):
  monkeypatch.setenv("TFDS_DATA_DIR", str(place / "tfds"))
  write_images(place / "0", {"ant": 9, "bee": 9})
  write_images(place / "1", {"ant": 8, "cow": 8}, seed=1)
  sources = [folder(place / name) for name in "01"]

  def owner():
    found = contents(opened("train"))
    return [contents(source) for source in sources].index(found)

  return [lambda source=source: made(place, {"train": source}) for source in sources], owner


def exports(place, monkeypatch, name="w.npz"):
  shapes = dict(name="ViT-Ti/4", depth=1, width=16, mlp_dim=32, heads=2, num_classes=2)
  model = models.create(**shapes)
  params = model.init(np.zeros(2, np.uint32), np.zeros((1, 8, 8, 3), np.float32), train=False)
  params = dict(params["params"])

  def write(number):
    head = {"kernel": np.zeros((16, 2), np.float32), "bias": np.full(2, number, np.float32)}
    card = Card(image_size=8, class_names=(f"{number}a", f"{number}b"))
    return lambda: weights.write(place / name, weights.Weights(params | {"head": head}, card))

  def owner():
    read = weights.read(place / name)
    assert read.class_names()[0] == f"{int(read.params['head']['bias'][0])}a"
    return int(read.class_names()[0][0])

  return [write(0), write(1)], owner


def huggingface(place, monkeypatch):
  return exports(place, monkeypatch, "w")


def surveys(place, monkeypatch):
  def write(number):
    trial = lambda case, batch: dict(fits=batch < 32, seconds=1.0 + number)
    return lambda: survey.Survey(place, "a device", 8, trial).do(
      [Case("inference", "ViT-B/16", 224)]
    )

  def owner():
    with (place / survey.RESULTS).open(newline="") as file:
      (seconds,) = {row["seconds"] for row in csv.DictReader(file) if row["fits"] == "True"}
    return int(float(seconds)) - 1

  return [write(0), write(1)], owner


def searches(place, monkeypatch):
  """Searches for copies; Beam, which takes seconds to start, is replaced."""
  pytest.importorskip("apache_beam", reason="apache-beam is not installed (extra `dedup`)")
  write_images(place / "in", {"ant": 9})
  source = folder(place / "in")
  monkeypatch.setattr(find.Opener, "source", lambda *_: source)
  from vit_jax.extras.duplicates import pipeline, report

  def pairs(sets, directory, **_):
    train = sets[0][0]
    for part in range(3):
      line = f'{{"train": {train}, "test": {part}, "set": 0, "likeness": 1.0}}\n'
      files.write_text(directory / f"pairs-{train}-{part}.jsonl", line)
    return dict.fromkeys(("known", "sought", "broken"), 0)

  monkeypatch.setattr(pipeline, "find_pairs", pairs)
  monkeypatch.setattr(report, "_thumbnail", lambda *_: b"")
  search = lambda number: find.search(number, [0], place, max_pixels=1, shown=0, options=[])

  def owner():
    (row,) = [line for line in (place / "exclude.txt").read_text().splitlines() if line[0] != "#"]
    return int(row.split()[0])

  return [lambda: search(0), lambda: search(1)], owner


CASES = [caches, datasets, exports, huggingface, surveys, searches]


@pytest.mark.parametrize("case", CASES)
def test_two_writers(tmp_path, monkeypatch, case):
  writers, owner = case(tmp_path / "place", monkeypatch)
  slow_disk(monkeypatch)
  ends = at_once(*writers)
  refused = [number for number, end in enumerate(ends) if isinstance(end, Exception)]
  assert len(refused) == 1, ends
  assert isinstance(ends[refused[0]], ConfigError), ends
  assert owner() == 1 - refused[0]
  assert not list(tmp_path.rglob("*.lock"))


def test_one_writer_at_a_time(tmp_path):
  """Whoever ends removes the lock; nobody may hold the removed one."""
  holders, most = [], types.SimpleNamespace(count=0)
  guard = threading.Lock()

  def write():
    for _ in range(300):
      try:
        with files.one_writer(tmp_path / "x"):
          with guard:
            holders.append(1)
            most.count = max(most.count, len(holders))
          with guard:
            holders.pop()
      except ConfigError:
        pass

  assert at_once(*[write] * 8) == [None] * 8
  assert most.count == 1


def test_what_is_there_is_not_created_again(tmp_path, monkeypatch):
  def without_links(*_):
    raise PermissionError(1, "Operation not permitted")

  assert files.create(tmp_path / "x", "one")
  monkeypatch.setattr(os, "link", without_links)
  assert not files.create(tmp_path / "x", "two")
  assert files.create(tmp_path / "y", "two")
  assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"x": "one", "y": "two"}
