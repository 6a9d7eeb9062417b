"""The choice of a learning rate: grid, ties, no run done twice, and a test set nobody saw."""

import csv
import json
import math
import pathlib
import shutil

import jax
import numpy as np
import pytest

from tests.data import tfds_fixture
from vit_jax import config as c
from vit_jax import recipes
from vit_jax.data.images import BadImage
from vit_jax.experiments import runs, sweep
from vit_jax.experiments.sweep import Sweep
from vit_jax.process.signals import StopRequest
from vit_jax.storage import metrics_log, workdir
from vit_jax.training import opening, plan, train

RECIPE = """
from vit_jax.config import *

def get_config(part):
  train, scored = {"all": ("train", "test"), "development": ("train[:75%]", "train[75%:]")}[part]
  source = "tfds:tiny_single_label"
  return to_config_dict(Config(
    batch_size=8,
    duration=Duration(steps=3),
    log_every=Duration(steps=1),
    evaluate_every=Duration(steps=1),
    model=Model(name="ViT-Ti/16", depth=1, width=16, mlp_dim=32, heads=2, num_classes=3),
    data=Data(
      train=Dataset(source, train), evaluate={part: Dataset(source, scored)}, image_size=16
    ),
  ))
"""


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
  folder = tmp_path_factory.mktemp("tfds")
  tfds_fixture.write_single_label_tfds(folder, num_examples=60, num_classes=3, seed=0)
  return folder


@pytest.fixture
def data(prepared, tmp_path, monkeypatch):
  """Folder of the data set, and the two recipes."""
  shutil.copytree(prepared, tmp_path / "tfds")
  monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "tfds"))
  (tmp_path / "tiny.py").write_text(RECIPE)
  return tmp_path / "tfds" / "tiny_single_label" / "1.0.0"


def small(tmp_path, **changes):
  values = dict(
    development=f"{tmp_path / 'tiny.py'}:development",
    final=f"{tmp_path / 'tiny.py'}:all",
    learning_rates=(0.3, 0.01),
    seeds=2,
    folder=tmp_path / "sweep",
  )
  return Sweep(**(values | changes))


def here(some):
  """Runs in this process, where JAX is already there."""
  for run in some:
    if not runs.result(run.folder):
      config = recipes.resolve(run.recipe, run.overrides)
      ready = plan.make(config, opening.open_data(config), jax.devices()[:1])
      stop = StopRequest()
      with workdir.locked(run.folder, first=True):
        train.train(ready, run.folder, stop)


def last_line(folder):
  return metrics_log.read(pathlib.Path(folder))[-1]


def resolved(run):
  return json.loads((run.folder / "config.json").read_text())


def test_from_the_grid_to_the_test_set_which_is_not_there_while_choosing(data, tmp_path):
  chosen_by = small(tmp_path, seeds=1, overrides=("--config.optimizer.kind=sgd",))
  for file in data.glob("*-test.*"):
    file.rename(file.with_suffix(".away"))
  sweep.check(chosen_by)
  sweep.claim(chosen_by)
  here(sweep.grid(chosen_by))
  rate = sweep.chosen(chosen_by)
  for run in sweep.grid(chosen_by):
    assert "test" not in (run.folder / "config.json").read_text()
  scored = opening.open_data(recipes.resolve(chosen_by.final, ())).evaluations.head().source
  with pytest.raises(BadImage, match=r"tiny_single_label-test.*missing or damaged"):
    scored[0]
  for file in data.glob("*.away"):
    file.rename(file.with_suffix(".array_record-00000-of-00001"))
  found = sweep.search(chosen_by, execute=here)

  development = {
    row["learning_rate"]: last_line(row["workdir"])["development/top1"]
    for row in found["development"]
  }
  assert {row["learning_rate"]: row["top1"] for row in found["development"]} == development
  assert found["learning_rate"] == rate == sweep.choose(development)
  for seed, (run, row) in enumerate(zip(sweep.finals(chosen_by, rate), found["test"], strict=True)):
    config, lines = resolved(run), metrics_log.read(run.folder)
    assert (config["seed"], config["schedule"]["learning_rate"]) == (seed, rate)
    assert config["data"]["train"]["split"] == "train"
    assert config["optimizer"]["kind"] == "sgd"
    # Once, after the last step.
    assert [line["step"] for line in lines if "all/top1" in line] == [3]
    assert row["top1"] == lines[-1]["all/top1"]


def test_settings_of_the_runs(tmp_path):
  """Holds with any other overrides, also of the evaluation's frequency."""
  (tmp_path / "tiny.py").write_text(RECIPE)
  some = small(tmp_path, overrides=("--config.evaluate_every.epochs=2", "--config.batch_size=4"))
  resolved = lambda run: recipes.resolve(run.recipe, run.overrides)
  grid, finals = (list(map(resolved, made)) for made in (sweep.grid(some), sweep.finals(some, 0.3)))
  assert [(x.seed, x.schedule.learning_rate) for x in grid] == [(0, 0.3), (0, 0.01)]
  assert [(x.seed, x.schedule.learning_rate) for x in finals] == [(0, 0.3), (1, 0.3)]
  assert [x.evaluate_every for x in grid] == [c.Duration(epochs=2.0)] * 2
  assert [x.evaluate_every for x in finals] == [c.Duration()] * 2
  assert {x.batch_size for x in grid + finals} == {4}


def finished(run, top1, name="set"):
  """Writes the files of a finished run, for the logic around it."""
  run.folder.mkdir(parents=True)
  config = c.to_dict(c.Config(batch_size=10, duration=c.Duration(steps=5)))
  (run.folder / "config.json").write_text(json.dumps(config))
  lines = [{"step": 5, "data/epoch": 1.0}, {"step": 5, f"{name}/top1": top1, f"{name}/loss": 1.0}]
  (run.folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_the_best_is_chosen_and_of_equal_ones_the_smallest():
  assert sweep.choose({0.3: 0.5, 0.1: 0.7, 0.03: 0.6}) == 0.1
  assert sweep.choose({0.3: 0.7, 0.03: 0.7, 0.1: 0.7, 0.01: 0.6}) == 0.03


def test_none_is_chosen_before_all_are_done(tmp_path):
  three = small(tmp_path, learning_rates=(0.3, 0.1, 0.03))
  finished(sweep.grid(three)[1], 0.9)
  with pytest.raises(c.ConfigError, match=r"learning rates 0\.3, 0\.03 are not done"):
    sweep.chosen(three)


def test_mean_and_deviation_of_the_seeds(tmp_path):
  some, scores = small(tmp_path, seeds=3), [0.5, 0.53125, 0.6875]
  for run in sweep.grid(some):
    finished(run, 0.5)
  for run, top1 in zip(sweep.finals(some, 0.01), scores, strict=True):
    finished(run, top1)
  found = sweep.report(some)
  assert [(row["seed"], row["top1"]) for row in found["test"]] == list(enumerate(scores))
  assert found["mean"] == pytest.approx(np.mean(scores), abs=1e-15)
  assert found["std"] == pytest.approx(np.std(scores, ddof=1), abs=1e-15)


def test_each_part_is_executed_before_the_next_is_known(tmp_path):
  some, seen = small(tmp_path), []

  def execute(parts):
    seen.append([run.name for run in parts])
    for run, top1 in zip(parts, (0.25, 0.75), strict=True):
      finished(run, top1)

  found = sweep.search(some, execute=execute)
  assert seen == [
    ["development, learning rate 0.3", "development, learning rate 0.01"],
    ["test, learning rate 0.01, seed 0", "test, learning rate 0.01, seed 1"],
  ]
  assert (found["learning_rate"], found["mean"]) == (0.01, 0.5)
  assert found["std"] == pytest.approx(math.sqrt(0.125))


def test_one_seed_has_no_deviation(tmp_path):
  one = small(tmp_path, seeds=1)
  found = sweep.search(one, execute=lambda some: [finished(run, 0.5) for run in some])
  assert (found["mean"], found["std"]) == (0.5, None)
  assert sweep.table(found).endswith("mean                      50.00%")
  sweep.write(one, found)


def test_a_rate_or_a_seed_more_keeps_the_runs_that_are_there(tmp_path):
  before = small(tmp_path)
  after = small(tmp_path, learning_rates=(0.1, 0.3, 0.01), seeds=3)
  sweep.claim(before)
  sweep.claim(after)
  assert {run.folder for run in sweep.grid(before)} < {run.folder for run in sweep.grid(after)}
  assert {run.folder for run in sweep.finals(before, 0.3)} < {
    run.folder for run in sweep.finals(after, 0.3)
  }
  everything = [*sweep.grid(after), *sweep.finals(after, 0.3), *sweep.finals(after, 0.1)]
  assert len({run.folder for run in everything}) == len(everything)


@pytest.mark.parametrize(
  ("changes", "key"),
  [
    (dict(overrides=("--config.batch_size=3",)), "overrides"),
    (dict(development="configs/other.py"), "development"),
    (dict(final="configs/other.py"), "final"),
  ],
)
def test_a_folder_belongs_to_one_sweep(tmp_path, changes, key):
  sweep.claim(small(tmp_path, **changes))  # there are no runs yet
  sweep.claim(small(tmp_path))
  finished(sweep.grid(small(tmp_path))[0], 0.5)
  with pytest.raises(c.ConfigError, match=rf"holds runs with {key} .*another --workdir"):
    sweep.claim(small(tmp_path, **changes))


def test_a_folder_that_cannot_be_used(tmp_path):
  finished(sweep.grid(small(tmp_path))[0], 0.5)
  (tmp_path / "sweep" / "sweep.json").write_text("{")
  with pytest.raises(c.ConfigError, match=r"sweep\.json is damaged"):
    sweep.claim(small(tmp_path))
  with pytest.raises(c.ConfigError, match="cannot be written to: Not a directory"):
    sweep.claim(small(tmp_path, folder=tmp_path / "sweep" / "sweep.json" / "below"))


def test_runs_that_drew_parts_in_the_former_way_are_not_gone_on_with(tmp_path):
  (tmp_path / "tiny.py").write_text(RECIPE)
  begun = small(tmp_path)
  sweep.check_sampling(begun)
  meta = sweep.grid(begun)[0].folder / "checkpoints" / "1" / "meta" / "metadata"
  meta.parent.mkdir(parents=True)
  meta.write_text(json.dumps({"config": {"data": {"sampling": "uniform"}}}))
  sweep.check_sampling(begun)
  meta.write_text(json.dumps({"config": {"data": {"image_size": 8}}}))
  with pytest.raises(c.ConfigError, match=r"runs with config\.data\.sampling=grain, as before"):
    sweep.check_sampling(begun)


@pytest.mark.parametrize("key", ["seed", "schedule.learning_rate"])
def test_what_a_sweep_sets_itself_is_not_overridden(tmp_path, key):
  with pytest.raises(c.ConfigError, match=f"--config.{key} is what a sweep sets itself"):
    sweep.check(small(tmp_path, overrides=(f"--config.{key}=1",)))


@pytest.mark.parametrize(
  ("text", "message"),
  [
    ("", "'', is empty"),
    (" , ", "is empty"),
    ("0.1,-0.3", "'-0.3' is no number above 0"),
    ("0", "'0' is no number above 0"),
    ("0.1,nan", "'nan' is no number"),
    ("inf", "'inf' is no number"),
    ("0.1;0.3", "'0.1;0.3' is no number"),
    ("0.1,1e-1", "0.1 stands in the grid twice"),
  ],
)
def test_wrong_grids(text, message):
  with pytest.raises(c.ConfigError, match=message):
    sweep.rates(text)


def test_results_as_table_and_picture(tmp_path):
  some = small(tmp_path)
  result = dict(
    development=[
      dict(learning_rate=0.3, top1=0.25, workdir="a"),
      dict(learning_rate=0.01, top1=0.9876, workdir="b"),
    ],
    learning_rate=0.01,
    test=[dict(seed=0, top1=0.5, workdir="c"), dict(seed=1, top1=0.75, workdir="d")],
    mean=0.625,
    std=0.1768,
    others={},
  )
  assert sweep.table(result).splitlines() == [
    "learning rate  development top-1",
    "0.3                       25.00%",
    "0.01                      98.76%  chosen",
    "",
    "seed                  test top-1",
    "0                         50.00%",
    "1                         75.00%",
    "mean                      62.50%  ± 17.68%",
  ]
  sweep.claim(some)
  sweep.write(some, result)
  rows = list(csv.DictReader((some.folder / "sweep.csv").read_text().splitlines()))
  assert [list(row.values()) for row in rows] == [
    ["development", "0.3", "0", "0.25", "a"],
    ["development", "0.01", "0", "0.9876", "b"],
    ["test", "0.01", "0", "0.5", "c"],
    ["test", "0.01", "1", "0.75", "d"],
  ]
  assert (some.folder / "sweep.png").read_bytes().startswith(b"\x89PNG")
