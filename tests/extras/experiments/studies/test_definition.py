"""What a study's file may say, and the sentence for each mistake."""

import dataclasses

import numpy as np
import pytest
from PIL import Image

from tests import modules, programs
from tests.extras.experiments.studies import stub
from vit_jax import models, weights
from vit_jax.config import ConfigError, Dataset
from vit_jax.data.datasets import Trained
from vit_jax.extras.experiments.studies import (
  Cell,
  Choice,
  Drawing,
  Paper,
  Score,
  Stage,
  Study,
  loading,
  runner,
)
from vit_jax.extras.experiments.studies.results import in_paper
from vit_jax.weights import card

GOOD = """
from vit_jax.extras.experiments.studies import Cell, Drawing, Stage, Study

def small():
  stage = Stage("configs/vit_digits.py", {"seed": 1} if SEED else {})
  return Study(cells=(Cell("a", stage, {"x": 1}),), drawing=Drawing(x="x"))
"""


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch):
  monkeypatch.chdir(programs.ROOT)


def written(path, text):
  path.write_text(text)
  return str(path)


def test_a_file_and_what_is_wrong_with_it(tmp_path):
  path = tmp_path / "s.py"
  assert loading.load(written(path, GOOD.replace("SEED", "False")), "small").cells[0].label == "a"
  for text, scale, message in [
    (GOOD.replace("SEED", "False"), "paper", "has no scale 'paper'; it has small"),
    (GOOD.replace("SEED", "True"), "small", "sets seed, which the study itself sets"),
    (GOOD, "small", r"cannot be run \(line 5\): NameError: name 'SEED'"),
    ("1 / 0", "small", r"cannot be run \(line 1\): ZeroDivisionError"),
    ("small = 3", "small", "it has neither small nor paper"),
    ("def small(): return 3", "small", r"small\(\) returned int; it must return a Study"),
    (GOOD.replace('{"seed": 1} if SEED else {}', "3"), "small", r"s.py cannot be run.*TypeError"),
  ]:
    with pytest.raises(ConfigError, match=message):
      loading.load(written(path, text), scale)
  with pytest.raises(ConfigError, match=r"no study .*/z.py; nearest: .*/s.py"):
    loading.load(str(tmp_path / "z.py"), "small")


STAGE = Stage(stub.DIGITS)
LAST = Stage(stub.DIGITS, after=STAGE, mode="evaluate")
TWO = ({"k": 1}, {"k": 2})


def cells(*stage, factors=None, label="a", **named):
  """The cells of a study with one stage."""
  made = stage[0] if stage and isinstance(stage[0], Stage) else Stage(stub.DIGITS, *stage, **named)
  return dict(cells=(Cell(label, made, factors or {"x": 1}),))


@pytest.mark.parametrize(
  ("parts", "message"),
  [
    (dict(cells=()), "has no cells"),
    (dict(cells=cells()["cells"] * 2), "2 cells have the label 'a'"),
    (dict(cells=cells()["cells"] + cells(label="b", factors={"y": 1})["cells"]), "give all cells"),
    (cells(label="1:2"), "'1:2' cannot be a label"),
    (cells(factors={"score": 1}), "The factor 'score' cannot be a column"),
    (cells(factors={"step": 1}), "The factor 'step' cannot be a column"),
    (cells(factors={"": 1}), "The factor '' cannot be a column"),
    (cells(name="a/b"), "'a/b' of the cell 'a' needs a name"),
    (cells({"seed": 1}), "sets seed, which the study itself sets"),
    (cells(mode="test"), "is none of train, evaluate"),
    (cells(average=False), "average=False has no effect"),
    (cells(mode="evaluate"), "evaluates the weights of another one"),
    (cells(after=LAST), "is after 'training', which trains nothing"),
    (cells(choice=Choice(stub.RATES)), "chooses settings without held-out data"),
    (cells(choice=Choice(())), "chooses among no options"),
    (cells(choice=Choice(TWO[:1] * 2, {"h": 2})), r"has the candidate \{'k': 1\} twice"),
    (cells(choice=Choice(TWO, {"k": 3})), "holds k as 3 in all trials, so its candidate 1 would"),
    (dict(drawing=Drawing(x="z")), "'z' is no factor of the cells; choose one of x, cell"),
    (dict(drawing=Drawing(x="epoch", by="chosen")), "'chosen' is no factor"),
    (dict(drawing=Drawing(x=("x", "epoch"))), "'epoch' is no factor"),
    (cells(LAST) | dict(drawing=Drawing(x="epoch")), "along epochs, but the cell 'a' trains no"),
    (dict(drawing=Drawing(x=())), "draws nothing; name a factor"),
    (dict(means=(("cell",),)), "'cell' is no factor of the cells; choose one of x"),
    (dict(seeds=0), r"Study\(seeds=0\) must be from 1 to 1,000"),
    (dict(score=Score(take="first")), r"Score\(take='first'\) is none of last, best"),
    (cells({"model.depth": np.int64(2)}), "holds more than text, numbers, .*int64"),
    (cells(factors={"x": len}), "holds more than text, numbers, .*write str"),
  ],
)
def test_wrong_studies(parts, message):
  study = Study(**(cells() | dict(drawing=Drawing(x="x")) | parts))
  with pytest.raises(ConfigError, match=message):
    loading.check(study, "s.py")


def test_over_epochs_any_column_of_the_curves_is_drawn():
  for by in ("x", "cell", "seed"):
    loading.check(Study(**cells(), drawing=Drawing(x="epoch", by=by)), "s.py")


def checked(tmp_path, study, *overrides, data=False):
  return stub.runner(tmp_path, study, overrides).checked_costs(data=data)


def tuned(**settings):
  """The study of the stubs with other settings of its first cell."""
  study = stub.study(0.0, 0.1)
  first = study.cells[0]
  stage = dataclasses.replace(first.stage, settings={**first.stage.settings, **settings})
  return dataclasses.replace(study, cells=(dataclasses.replace(first, stage=stage), study.cells[1]))


@pytest.mark.parametrize(
  ("settings", "parts", "message"),
  [
    ({"modle.depth": 3}, {}, r"cell 'dropout 0.0': config.modle is not a setting; nearest"),
    ({"batch_size": "x"}, {}, r"cell 'dropout 0.0': config.batch_size='x' cannot be read as int"),
    ({"data.image_size": 15}, {}, "cell 'dropout 0.0': "),
    ({"schedule.warmup.steps": 11}, {}, "cell 'dropout 0.0': .*longer than the run of 10 steps"),
    (
      {},
      dict(score=Score("test/top2")),
      "No evaluation of .* is sure to write 'test/top2'; nearest: test",
    ),
    ({}, dict(score=Score("test/loss")), r"test/loss, smaller is better.*Score\(better='smaller'"),
    ({"evaluate.test.source": ""}, {}, "evaluates nothing"),
  ],
)
def test_wrong_cells_are_named_before_anything_starts(tmp_path, settings, parts, message):
  with pytest.raises(ConfigError, match=message):
    checked(tmp_path, dataclasses.replace(tuned(**settings), **parts))


@pytest.mark.parametrize(
  ("name", "scale", "override"),
  [
    ("subsets", "paper", "seed=1"),
    ("subsets", "paper", "init_from=a"),
    ("subsets", "paper", "data.train.subset=9000000"),
    ("optimizer", "paper", "optimizer.kind=adam"),
    ("optimizer", "paper", "schedule.learning_rate=0.01"),  # which is chosen
    ("optimizer", "paper", "evaluate.test.split=test"),  # which trials hold back
    ("compute", "paper", "duration.steps=5"),  # the recipes have 7 and 14 epochs
    ("data_size", "small", "model.name=R26x1"),
    ("resolution", "small", "data.image_size=8"),
  ],
)
def test_the_command_line_cannot_set_what_runs_differ_in(name, scale, override):
  study = loading.load(f"configs/studies/{name}.py", scale)
  key = override.partition("=")[0]
  with pytest.raises(ConfigError, match=f"--config.{key} is set by the study itself"):
    runner.check_overrides(study, (f"--config.{override}",))


def test_the_command_line_sets_what_all_runs_share():
  shared = ("batch_size=32", "model.num_classes=7", "data.train.source=folder:a")
  runner.check_overrides(stub.study(0.0, 0.1), tuple(f"--config.{one}" for one in shared))


def test_a_run_without_a_name_has_the_model_of_its_weights(tmp_path, tiny_run):
  of_weights = ("name", "depth", "width", "mlp_dim", "heads")
  settings = stub.STEPS | {f"model.{key}": "auto" for key in of_weights}
  first = Stage(stub.DIGITS, settings | {"init_from": str(tiny_run)}, name="first")
  made = stub.runner(tmp_path, Study((Cell("a", first, {"x": 1}),), Drawing(x="x")))
  assert all(cost.flops for cost in made.checked_costs(data=True).values())
  models = [config.model for config in made.configs().values()]
  assert {(one.name, one.depth, one.width) for one in models} == {("ViT-Ti/4", 1, 8)}
  later = Stage(stub.DIGITS, settings, after=first)
  with pytest.raises(ConfigError, match=r"cell 'a': config\.model\.name is auto in a stage that"):
    checked(tmp_path, Study((Cell("a", later, {"x": 1}),), Drawing(x="x")))


OPEN = """
from vit_jax.config import *
from vit_jax.evaluation.classification import Classification

def get_config():
  data = Data(train=Dataset("folder:GONE"), image_size=32)
  return to_config_dict(Config(
    batch_size=8, duration=Duration(epochs=2), model=Model(name="ViT-Ti/16"), data=data,
    evaluate={"test": Classification("folder:GONE")}))
"""


def test_what_is_left_to_missing_data_counts_only_where_the_cost_follows_from_it(tmp_path):
  """Classes, crops, flips, lines of metrics, warm-up and average do not count."""
  recipe = written(tmp_path / "open.py", OPEN.replace("GONE", str(tmp_path / "gone")))
  study = lambda settings: Study((Cell("a", Stage(recipe, settings), {"x": 1}),), Drawing(x="x"))
  cost, *_ = checked(tmp_path, study({})).values()
  assert (cost.steps, cost.batch_size) == (None, 8)
  assert cost.flops
  assert checked(tmp_path, dataclasses.replace(study({}), score=Score("test/top5")))
  for key in ("batch_size", "duration", "data.image_size", "model.name"):
    with pytest.raises(ConfigError, match=rf"cell 'a': config\.{key}.*auto.* is not known here"):
      checked(tmp_path, study({key: "auto"}))


def test_an_evaluation_of_a_recipe_without_a_batch_size(tmp_path):
  settings = stub.STEPS | {"batch_size": "auto"}
  last = Stage(stub.DIGITS, settings, name="last", after=Stage(stub.DIGITS), mode="evaluate")
  cost = checked(tmp_path, Study((Cell("a", last, {"x": 1}),), Drawing(x="x")))
  assert sum(one.exaflops(one.steps) for one in cost.values()) > 0


def test_data_that_is_missing_or_used_twice(tmp_path):
  gone = f"--config.data.train.source=folder:{tmp_path}/gone"
  assert checked(tmp_path, stub.study(0.0), gone)  # a plan needs no data
  with pytest.raises(ConfigError, match=r"cell 'dropout 0.0': .*gone"):
    checked(tmp_path, stub.study(0.0), gone, data=True)
  with pytest.raises(ConfigError, match=r"cell 'dropout 0.0': .*digits train.*have"):
    checked(tmp_path, stub.study(0.0), data=True)  # the trials score what they train on


@pytest.fixture
def halves(tmp_path):
  """Makes studies of pre-training on a folder, with a choice, and fine-tuning on another."""
  draw = np.random.default_rng(0)
  for part in ("first", "train", "test"):
    for name in ("cat", "dog"):
      (tmp_path / part / name).mkdir(parents=True)
      for i in range(10):
        pixels = draw.integers(0, 256, (28, 28, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / part / name / f"{i}.png")

  def places(**parts):
    found = {"model.num_classes": 2, "batch_size": 8, "data.train.subset": 0}
    found |= {"evaluate.test.subset": 0}
    for key, (part, split) in parts.items():
      key = key.replace("__", ".")
      found |= {f"{key}.source": f"folder:{tmp_path / part}", f"{key}.split": split}
    return found

  first = places(
    data__train=("first", "[:80%]"),
    evaluate__test=("first", "[80%:]"),
    evaluate__second__train=("train", ""),
    evaluate__second__test=("test", ""),
  )
  first["evaluate.second.test.subset"] = 0
  second = places(data__train=("train", ""), evaluate__test=("test", ""))

  def study(options=RATES, held_out=None, score=None, start=None, **parts):
    held_out, start = held_out or places(**parts), start or {}
    choice = Choice(options, held_out, score=score or Score())
    recipe = "configs/fashion_halves.py:{},ViT-64/7"
    before = Stage(recipe.format("first"), first | start, choice=choice)
    last = Stage(recipe.format("second"), second, name="tuning", after=before)
    return Study((Cell("one", last, {"model": "ViT"}),), Drawing(x="model"))

  return study


RATES = ({"schedule.learning_rate": 1e-3}, {"schedule.learning_rate": 3e-3})
APART = dict(data__train=("first", "[:60%]"), evaluate__test=("first", "[60%:80%]"))


def test_no_trial_of_any_stage_sees_what_the_cell_is_scored_on(tmp_path, halves):
  assert checked(tmp_path, halves(**APART), data=True)
  for leak in (
    halves(**APART | dict(evaluate__test=("test", ""))),
    halves(**APART | dict(data__train=("test", ""))),
    halves(**APART, score=Score("second/5shot")),
  ):
    with pytest.raises(ConfigError, match=r"cell 'one': .*test/cat/0\.png"):
      checked(tmp_path, leak, data=True)


@pytest.fixture(scope="module")
def params():
  """Those of a teacher of two classes."""
  module = models.create("ViT-Ti/7", depth=1, width=8, mlp_dim=8, heads=1, num_classes=2)
  return modules.parameters(module, np.zeros((1, 28, 28, 3), np.float32), train=False)


@pytest.mark.parametrize("part", ["train", "test"])
def test_no_run_scores_what_a_teacher_of_any_was_trained_on(tmp_path, halves, params, part):
  study = halves(**APART)
  known = (Trained(Dataset(f"folder:{tmp_path / part}"), ""),)
  known = card.Card(28, class_names=("cat", "dog"), trained_on=known)
  weights.write(tmp_path / "teacher.npz", weights.Weights(params, known))
  taught = {"objective.kind": "distillation", "objective.teacher": str(tmp_path / "teacher.npz")}
  stage = study.cells[0].stage
  stage = dataclasses.replace(stage, settings={**stage.settings, **taught})
  study = dataclasses.replace(study, cells=(Cell("one", stage, {"model": "ViT"}),))
  if part == "train":
    assert checked(tmp_path, study, data=True)
    return
  with pytest.raises(ConfigError, match=r"or their teacher were trained on .*test/cat/0\.png"):
    checked(tmp_path, study, data=True)


def test_no_run_scores_what_the_weights_of_the_first_were_trained_on(tmp_path, halves):
  def started(seen):
    known = (Trained(Dataset(f"folder:{tmp_path / seen}"), ""),)
    card.write(tmp_path / f"{seen}.npz.json", card.Card(image_size=28, trained_on=known))
    (tmp_path / f"{seen}.npz").touch()
    return {"init_from": str(tmp_path / f"{seen}.npz")}

  good, bad = (halves(**APART, start=started(seen)) for seen in ("train", "test"))
  assert checked(tmp_path, good, data=True)
  (cell,), (other,) = good.cells, bad.cells
  other = dataclasses.replace(other, label="other", factors={"model": "other"})
  both = dataclasses.replace(good, cells=(cell, other))
  message = r"cell 'other': What the weights or their teacher were trained on .*test/cat/0\.png"
  with pytest.raises(ConfigError, match=message):
    checked(tmp_path, both, data=True)


def test_no_trial_scores_what_the_run_before_it_was_trained_on(tmp_path, halves):
  study = halves(**APART)
  source = {"evaluate.test.source": f"folder:{tmp_path / 'first'}"}

  def scoring(split, **allowed):
    choice = Choice(RATES, source | {"evaluate.test.split": split} | allowed)
    stage = dataclasses.replace(study.cells[0].stage, choice=choice)
    return dataclasses.replace(study, cells=(Cell("one", stage, {"model": "ViT"}),))

  assert checked(tmp_path, scoring("[80%:]"), data=True)
  with pytest.raises(ConfigError, match=r"cell 'one': .*both have .*first/cat/"):
    checked(tmp_path, scoring("[:20%]"), data=True)
  assert checked(tmp_path, scoring("[:20%]", **{"data.allow_overlap": True}), data=True)


def test_every_candidate_is_kept_apart_not_the_first_alone(tmp_path, halves):
  half, more, most = ({"data.train.split": f"[:{share}%]"} for share in (50, 60, 80))
  held_out = {"evaluate.test.split": "[60%:80%]"}
  assert checked(tmp_path, halves((half, more), held_out), data=True)
  with pytest.raises(ConfigError, match=r"cell 'one': .*both have"):
    checked(tmp_path, halves((half, most), held_out), data=True)


def paper_of(tmp_path, text):
  path = tmp_path / "paper.csv"
  path.write_text(text)
  return stub.study(0.0, 0.1, paper=Paper(str(path), "accuracy", "a table"))


def test_the_figures_of_the_paper(tmp_path):
  study = paper_of(tmp_path, "dropout,accuracy\n0.0,0.5\n0.2,0.7\n")
  assert in_paper(study) == {"dropout 0.0": 0.5}
  for text, message in [
    ("dropout,score\n0.0,1\n", "has no column 'accuracy'"),
    ("dropout,accuracy\n0.0,1\n0.0,2\n", "has 2 rows for the cell 'dropout 0.0'"),
    ("dropout,accuracy\n0.0,x\n", "holds 'x', which is no number"),
  ]:
    with pytest.raises(ConfigError, match=message):
      in_paper(paper_of(tmp_path, text))
  (tmp_path / "paper.csv").unlink()
  with pytest.raises(ConfigError, match="is missing or has no column"):
    in_paper(study)
