"""What a study's file may say, and the sentence for each mistake."""

import dataclasses
import pathlib

import numpy as np
import pytest
from PIL import Image

from tests import programs
from tests.experiments.studies import stub
from vit_jax.config import ConfigError, Dataset
from vit_jax.data.history import Trained
from vit_jax.experiments.studies import Cell, Choice, Drawing, Paper, Score, Stage, Study, conduct
from vit_jax.experiments.studies.loading import load
from vit_jax.experiments.studies.paper import figures
from vit_jax.weights import card

GOOD = """
from vit_jax.experiments.studies import Cell, Drawing, Stage, Study

def small():
  stage = Stage("configs/vit_digits.py", {"seed": 1} if SEED else {})
  return Study(cells=(Cell("a", stage, {"x": 1}),), drawing=Drawing(x="x"))
"""


def written(path, text):
  path.write_text(text)
  return str(path)


def test_a_file_and_what_is_wrong_with_it(tmp_path):
  path = tmp_path / "s.py"
  assert load(written(path, GOOD.replace("SEED", "False")), "small").cells[0].label == "a"
  for text, scale, message in [
    (GOOD.replace("SEED", "False"), "paper", "has no scale 'paper'; it has small"),
    (GOOD.replace("SEED", "True"), "small", "sets seed, which the study itself sets"),
    (GOOD, "small", r"cannot be run \(line 5\): NameError: name 'SEED'"),
    ("1 / 0", "small", r"cannot be run \(line 1\): ZeroDivisionError"),
    ("small = 3", "small", "it has neither small nor paper"),
    ("def small(): return 3", "small", r"small\(\) returned int; it must return a Study"),
  ]:
    with pytest.raises(ConfigError, match=message):
      load(written(path, text), scale)
  with pytest.raises(ConfigError, match=r"no study .*/z.py; nearest: .*/s.py"):
    load(str(tmp_path / "z.py"), "small")


@pytest.mark.parametrize(
  ("values", "message"),
  [
    ('{}, {"x": Kind.A}', "holds more than text, numbers, tuples and dicts .*Kind"),
    ('types.MappingProxyType({}), {"x": 1}', "holds more than .*mappingproxy.*; write str"),
    ('{}, {"x": lambda: 1}', "holds more than .*lambda"),
  ],
)
def test_what_cannot_go_to_another_process(tmp_path, values, message):
  text = f"""
import enum
import types
from vit_jax.experiments.studies import Cell, Drawing, Stage, Study

class Kind(enum.Enum):
  A = 1

def cell(settings, factors):
  return Cell("a", Stage("configs/vit_digits.py", settings), factors)

def small():
  return Study(cells=(cell({values}),), drawing=Drawing(x="x"))
"""
  with pytest.raises(ConfigError, match=message):
    load(written(tmp_path / "s.py", text), "small")


def wrong(tmp_path, monkeypatch, study, message):
  """Loads a study from a file; it is refused."""
  path = tmp_path / "s.py"
  path.write_text("from tests.experiments.studies.test_definition import small")
  monkeypatch.setitem(globals(), "small", lambda: study)
  with pytest.raises(ConfigError, match=message):
    load(str(path), "small")


STAGE = Stage(stub.DIGITS)
LAST = Stage(stub.DIGITS, after=STAGE, mode="evaluate")
CELL = Cell("a", STAGE, {"x": 1})
DRAWING = Drawing(x="x")


@pytest.mark.parametrize(
  ("parts", "message"),
  [
    (dict(cells=()), "has no cells"),
    (dict(cells=(CELL, CELL)), "has 2 cells with the label 'a'; give each its own"),
    (dict(cells=(CELL, Cell("b", STAGE, {"y": 1}))), "'b' has the factors y, and 'a' has x"),
    (dict(cells=(Cell("a", STAGE, {"score": 1}),)), "'score' is a column of the results"),
    (dict(cells=(Cell("1:2", STAGE, {"x": 1}),)), "'1:2' cannot be a label"),
    (dict(cells=(Cell("a", Stage("r", name="a/b"), {"x": 1}),)), "'a/b' of the cell 'a' needs"),
    (dict(drawing=Drawing(x="z")), "draws 'z', which is no factor of its cells; choose one of x"),
    (dict(drawing=Drawing(x=("x", "epoch"))), "draws 'epoch', which is no factor"),
    (
      dict(cells=(Cell("a", LAST, {"x": 1}),), drawing=Drawing(x="epoch")),
      "draws epochs, but the cell 'a' trains nothing",
    ),
    (
      dict(drawing=Drawing(x="")),
      "draws '', which is no factor of its cells; choose one of x, cell",
    ),
    (dict(drawing=Drawing(x=())), "draws nothing; name a factor"),
    (dict(cells=(Cell("a", STAGE, {"step": 1}),)), "'step' is a column of the results"),
    (dict(cells=(Cell("a", STAGE, {"": 1}),)), "a factor of the cell 'a' has no name"),
    (
      dict(means=(("z",),)),
      "means over 'z', which is no factor of its cells; choose one of x",
    ),
    (dict(seeds=0), r"Study\(seeds=0\) must be from 1 to 1,000"),
    (dict(score=Score(take="first")), r"Score\(take='first'\) is none of last, best"),
    (
      dict(cells=(Cell("a", Stage("r", choice=Choice(stub.RATES)), {"x": 1}),)),
      "chooses settings without held-out data",
    ),
    (dict(cells=(Cell("a", Stage("r", choice=Choice(())), {"x": 1}),)), "chooses among no options"),
    (
      dict(cells=(Cell("a", Stage("r", choice=Choice(({"k": 1}, {"k": 1}), {"h": 2})), {"x": 1}),)),
      r"'training' of the cell 'a' has the candidate \{'k': 1\} twice; leave one out",
    ),
    (
      dict(cells=(Cell("a", Stage("r", choice=Choice(({"k": 1}, {"k": 2}), {"k": 3})), {"x": 1}),)),
      "holds k as 3 in all trials, so its candidate 1 would not be tried; leave k out of held_out",
    ),
    (dict(cells=(Cell("a", Stage("r", mode="test"), {"x": 1}),)), "is none of train, evaluate"),
    (
      dict(cells=(Cell("a", Stage("r", mode="evaluate"), {"x": 1}),)),
      "evaluates the weights of an",
    ),
    (
      dict(
        cells=(Cell("a", Stage("r", after=Stage("r", after=STAGE, mode="evaluate")), {"x": 1}),)
      ),
      "is after 'training', which trains nothing",
    ),
  ],
)
def test_wrong_studies(tmp_path, monkeypatch, parts, message):
  study = Study(**(dict(cells=(CELL,), drawing=DRAWING) | parts))
  wrong(tmp_path, monkeypatch, study, message)


def staged(*parts, **named):
  """The cells of a study with one stage."""
  return dict(cells=(Cell("a", Stage(stub.DIGITS, *parts, **named), {"x": 1}),))


@pytest.mark.parametrize(
  ("parts", "message"),
  [
    (dict(cells=CELL), r"Study\(cells=...\) is or holds Cell\(.*, where a tuple must be"),
    (dict(cells=(STAGE,)), r"Study\(cells=...\) is or holds Stage\(.*, where a Cell must be"),
    (
      dict(cells=(Cell(3, STAGE, {"x": 1}),)),
      r"Cell\(label=...\) is or holds 3, where text must be",
    ),
    (dict(cells=(Cell("a", STAGE, {1: 1}),)), r"Cell\(factors=...\) .* a dict with text as keys"),
    (
      dict(cells=(Cell("a", stub.DIGITS, {"x": 1}),)),
      r"Cell\(stage=...\) .*, where a Stage must be",
    ),
    (staged(None), r"Stage\(settings=...\) is or holds None, where a dict with text as keys must"),
    (staged(after="pre"), r"Stage\(after=...\) is or holds 'pre', where a Stage or None must be"),
    (staged(choice=Choice({"a": 1}, {})), r"Choice\(options=...\) .*, where a tuple must be"),
    (staged(choice=Choice((1e-3, 1e-2))), r"Choice\(options=...\) is or holds 0.001, where a dict"),
    (
      staged(choice=Choice(recipes="r.py")),
      r"Choice\(recipes=...\) is or holds 'r.py', where a tup",
    ),
    (dict(drawing="x"), r"Study\(drawing=...\) is or holds 'x', where a Drawing must be"),
    (dict(drawing=Drawing(None)), r"Drawing\(x=...\) is or holds None, where text or a tuple must"),
    (dict(score="test/loss"), r"Study\(score=...\) is or holds 'test/loss', where a Score must be"),
    (dict(seeds="3"), r"Study\(seeds=...\) is or holds '3', where a whole number must be"),
    (dict(paper="t.csv"), r"Study\(paper=...\) is or holds 't.csv', where a Paper or None must be"),
    (
      staged({"model.depth": np.int64(2)}),
      r"sets model.depth to np.int64\(2\), which .* int64; make",
    ),
    (staged({"name": pathlib.Path("a")}), "of 'a' sets name to PosixPath"),
  ],
)
def test_a_part_of_another_type_is_named(tmp_path, monkeypatch, parts, message):
  study = Study(**(dict(cells=(CELL,), drawing=DRAWING) | parts))
  wrong(tmp_path, monkeypatch, study, message)


def checked(tmp_path, study, *overrides, data=False):
  return conduct.checked(stub.conducted(tmp_path, study, overrides), data)


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
    (
      {},
      dict(score=Score("test/top2")),
      "No evaluation of .* is sure to write 'test/top2'; nearest: test",
    ),
    ({}, dict(score=Score("test/loss")), r"test/loss, smaller is better.*Score\(better='smaller'"),
    ({"data.evaluate.test.source": ""}, {}, "evaluates nothing"),
  ],
)
def test_wrong_cells_are_named_before_anything_starts(tmp_path, settings, parts, message):
  with pytest.raises(ConfigError, match=message):
    checked(tmp_path, dataclasses.replace(tuned(**settings), **parts))


@pytest.mark.parametrize(
  "key", ["seed", "init_from", "model.dropout", "schedule.learning_rate", "data.image_size"]
)
def test_the_command_line_cannot_set_what_is_compared(tmp_path, key):
  with pytest.raises(ConfigError, match=f"--config.{key} is set by the study itself"):
    checked(tmp_path, tuned(**{"data.image_size": 8}), f"--config.{key}=1")


@pytest.mark.parametrize(
  ("name", "scale", "override"),
  [
    ("subsets", "paper", "data.train.subset=9000000"),
    ("subsets", "paper", "schedule.learning_rate=0.001"),
    ("optimizer", "paper", "optimizer.kind=adam"),
    ("compute", "paper", "duration.steps=5"),  # the recipes have 7 and 14 epochs
    ("data_size", "small", "model.name=R26x1"),
  ],
)
def test_the_command_line_cannot_set_what_recipes_differ_in(name, scale, override, monkeypatch):
  monkeypatch.chdir(programs.ROOT)
  study = load(f"configs/studies/{name}.py", scale)
  key = override.partition("=")[0]
  with pytest.raises(ConfigError, match=f"--config.{key} is set by the study itself"):
    conduct.check_overrides(study, (f"--config.{override}",))
  alike = ("batch_size=32", "model.num_classes=7", "data.train.source=folder:a")
  conduct.check_overrides(stub.study(0.0, 0.1), tuple(f"--config.{one}" for one in alike))


def test_a_run_without_a_name_has_the_model_of_its_weights(tmp_path, tiny_run):
  settings = stub.STEPS | {"model.name": "", "model.depth": 0, "model.width": 0}
  settings |= {"model.mlp_dim": 0, "model.heads": 0}
  first = Stage(stub.DIGITS, settings | {"init_from": str(tiny_run)}, name="first")
  conducted = stub.conducted(tmp_path, Study((Cell("a", first, {"x": 1}),), DRAWING))
  assert all(cost.flops for cost in conduct.checked(conducted, data=True).values())
  models = [config.model for config in conducted.configs().values()]
  assert {(one.name, one.depth, one.width) for one in models} == {("ViT-Ti/4", 1, 8)}
  later = Stage(stub.DIGITS, settings, after=first)
  with pytest.raises(ConfigError, match=r"cell 'a': config\.model\.name is empty in a stage that"):
    checked(tmp_path, Study((Cell("a", later, {"x": 1}),), DRAWING))


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
    found |= {"data.evaluate.test.subset": 0}
    for key, (part, split) in parts.items():
      key = key.replace("__", ".")
      found |= {f"{key}.source": f"folder:{tmp_path / part}", f"{key}.split": split}
    return found

  first = places(
    data__train=("first", "[:80%]"),
    data__evaluate__test=("first", "[80%:]"),
    few_shot__second__train=("train", ""),
    few_shot__second__test=("test", ""),
  )
  first["few_shot.second.test.subset"] = 0
  second = places(data__train=("train", ""), data__evaluate__test=("test", ""))

  def study(options=RATES, held_out=None, score=None, start=None, **parts):
    held_out, start = held_out or places(**parts), start or {}
    choice = Choice(options, held_out, score=score or Score())
    recipe = "configs/fashion_halves.py:{},ViT-64/7"
    before = Stage(recipe.format("first"), first | start, choice=choice)
    last = Stage(recipe.format("second"), second, name="tuning", after=before)
    return Study((Cell("one", last, {"model": "ViT"}),), Drawing(x="model"))

  return study


RATES = ({"schedule.learning_rate": 1e-3}, {"schedule.learning_rate": 3e-3})


def test_no_trial_of_any_stage_sees_what_the_cell_is_scored_on(tmp_path, halves, monkeypatch):
  monkeypatch.chdir(programs.ROOT)
  apart = dict(data__train=("first", "[:60%]"), data__evaluate__test=("first", "[60%:80%]"))
  assert checked(tmp_path, halves(**apart), data=True)
  message = "cell 'one': .*test/cat/0.png"
  for leak in (
    halves(**apart | dict(data__evaluate__test=("test", ""))),
    halves(**apart | dict(data__train=("test", ""))),
    halves(**apart, score=Score("second/5shot")),
  ):
    with pytest.raises(ConfigError, match=message):
      checked(tmp_path, leak, data=True)


def test_no_run_scores_what_the_weights_of_the_first_were_trained_on(tmp_path, halves, monkeypatch):
  monkeypatch.chdir(programs.ROOT)
  apart = dict(data__train=("first", "[:60%]"), data__evaluate__test=("first", "[60%:80%]"))

  def started(seen):
    known = (Trained(Dataset(f"folder:{tmp_path / seen}"), ""),)
    card.write(tmp_path / f"{seen}.json", card.Card(image_size=28, trained_on=known))
    (tmp_path / f"{seen}.npz").touch()
    return {"init_from": str(tmp_path / f"{seen}.npz")}

  good, bad = (halves(**apart, start=started(seen)) for seen in ("train", "test"))
  assert checked(tmp_path, good, data=True)
  (cell,), (other,) = good.cells, bad.cells
  other = dataclasses.replace(other, label="other", factors={"model": "other"})
  both = dataclasses.replace(good, cells=(cell, other))
  message = r"cell 'other': What the weights were trained on .*test/cat/0\.png"
  with pytest.raises(ConfigError, match=message):
    checked(tmp_path, both, data=True)


def test_no_trial_scores_what_the_run_before_it_was_trained_on(tmp_path, halves, monkeypatch):
  monkeypatch.chdir(programs.ROOT)
  study = halves(data__train=("first", "[:60%]"), data__evaluate__test=("first", "[60%:80%]"))
  source = {"data.evaluate.test.source": f"folder:{tmp_path / 'first'}"}

  def scoring(split, **allowed):
    choice = Choice(RATES, source | {"data.evaluate.test.split": split} | allowed)
    stage = dataclasses.replace(study.cells[0].stage, choice=choice)
    return dataclasses.replace(study, cells=(Cell("one", stage, {"model": "ViT"}),))

  assert checked(tmp_path, scoring("[80%:]"), data=True)
  with pytest.raises(ConfigError, match=r"cell 'one': .*both have .*first/cat/"):
    checked(tmp_path, scoring("[:20%]"), data=True)
  assert checked(tmp_path, scoring("[:20%]", **{"data.allow_overlap": True}), data=True)


def test_every_candidate_is_kept_apart_not_the_first_alone(tmp_path, halves, monkeypatch):
  monkeypatch.chdir(programs.ROOT)
  half, more, most = ({"data.train.split": f"[:{share}%]"} for share in (50, 60, 80))
  held_out = {"data.evaluate.test.split": "[60%:80%]"}
  assert checked(tmp_path, halves((half, more), held_out), data=True)
  with pytest.raises(ConfigError, match=r"cell 'one': .*both have"):
    checked(tmp_path, halves((half, most), held_out), data=True)


def paper_of(tmp_path, text):
  path = tmp_path / "paper.csv"
  path.write_text(text)
  return stub.study(0.0, 0.1, paper=Paper(str(path), "accuracy", "a table"))


def test_the_figures_of_the_paper(tmp_path):
  study = paper_of(tmp_path, "dropout,accuracy\n0.0,0.5\n0.2,0.7\n")
  assert figures(study) == {"dropout 0.0": 0.5}
  for text, message in [
    ("dropout,score\n0.0,1\n", "has no column 'accuracy'"),
    ("dropout,accuracy\n0.0,1\n0.0,2\n", "has 2 rows for the cell 'dropout 0.0'"),
    ("dropout,accuracy\n0.0,x\n", "holds 'x', which is no number"),
  ]:
    with pytest.raises(ConfigError, match=message):
      figures(paper_of(tmp_path, text))
  (tmp_path / "paper.csv").unlink()
  with pytest.raises(ConfigError, match="cannot be read"):
    figures(study)
