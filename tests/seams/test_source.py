"""A source of examples is one file and one line: a toy goes through the main program and tools."""

import re

import numpy as np
import pytest

from tests.seams import program
from vit_jax import registry
from vit_jax.config import ConfigError
from vit_jax.data import datasets, sources
from vit_jax.data.sources import Example, Source
from vit_jax.extras.commands import cache, report
from vit_jax.extras.commands import prepare as prepare_data
from vit_jax.storage import metrics_log

pytestmark = pytest.mark.usefixtures("one_device")


class Toy(Source):
  """As many images as are asked for, dark and light in turn: the required members, and parts."""

  form = "toy:COUNT"
  class_names = ("dark", "light")

  def __init__(self, count, *, split):
    self._count, self._first = int(count), {"train": 0, "test": 10**6}[split]
    self.identity = f"toy {split} {count}"

  def __len__(self):
    return self._count

  def __getitem__(self, index):
    (label,) = self.labels(index)
    rng = np.random.default_rng(self._first + index)
    pixels = rng.integers(100 * label, 100 * label + 90, (9, 9, 3), dtype=np.uint8)
    return Example(pixels, (label,), f"image {index}")

  def labels(self, index):
    return (index % 2,)

  @classmethod
  def named_parts(cls, argument):
    return {split: (argument, split) for split in ("train", "test")}


@pytest.fixture(autouse=True)
def registered(monkeypatch):
  monkeypatch.setitem(registry.SOURCES, "toy", "tests.seams.test_source:Toy")


SPLITS = {
  "data.train": "train",
  "evaluate.test": "test",
  "evaluate.probe.train": "train",
  "evaluate.probe.test": "test",
}
SETTINGS = {
  **{f"{key}.source": "toy:40" for key in SPLITS},
  **{f"{key}.split": split for key, split in SPLITS.items()},
  "evaluate.probe.kind": "few_shot",
  "evaluate.probe.shots": "(1, 2)",
  "model.num_classes": "auto",
  "batch_size": 8,
  "duration.epochs": 0,
  "duration.steps": 12,
  "log_every.steps": 4,
}


def words(**changes):
  """A small run that trains on the toy and evaluates on it in two ways."""
  return [f"--config.{key}={value}" for key, value in (SETTINGS | changes).items()]


def test_it_is_trained_on_evaluated_and_reported(tmp_path, capsys):
  folder = tmp_path / "run"
  assert program.run(folder, *words(**{"data.train.subset": 24}))
  last = {}
  for line in metrics_log.read_lines(folder):
    last |= line
  assert last["loss"] < 0.7
  assert {"test/top1", "probe/2shot"} <= last.keys()
  program.run(folder, *words(), mode="evaluate")
  assert "toy:40 test" in capsys.readouterr().out
  report.main([str(folder), "--output", str(tmp_path / "report.html")])
  assert "toy:40" in (tmp_path / "report.html").read_text()


def test_images_that_are_trained_on_are_not_scored(tmp_path):
  with pytest.raises(ConfigError, match=r"40 images \(such as \'toy train 40 example 0\'\)"):
    program.run(tmp_path / "run", *words(**{"evaluate.test.split": "train"}))
  whole = sources.open_source("toy:40", split="train")
  assert datasets.shared_images(sources.Subset(whole, 10), whole).images == 10


def test_it_can_be_cached_and_prepared(tmp_path):
  cached = words(**{"data.cache": tmp_path / "cache"})
  cache.main(["--config=configs/vit_digits.py", *program.SMALL, *cached])
  assert program.run(tmp_path / "run", *cached)
  prepare_data.main(["images", "mine", "--split=train=toy:12", f"--data-dir={tmp_path / 'tfds'}"])
  assert (tmp_path / "tfds/mine/1.0.0/dataset_info.json").exists()


@pytest.mark.parametrize(
  ("spec", "message"),
  [
    ("toi:3", '"toi:3" does not name a data source; give one of these, nearest first: toy:COU'),
    ("toy", '"toy" does not name a data source'),
  ],
)
def test_messages_name_it(spec, message):
  with pytest.raises(ConfigError, match=re.escape(message)):
    sources.open_source(spec)
