"""The benchmark on VTAB-1k: the paper's figures, recipes, missing data, the choice of settings."""

import csv
import dataclasses
import functools
import pathlib
import statistics

import pytest

from tests import programs, resolved
from tests.extras.experiments.studies import stub
from vit_jax import config as c
from vit_jax import recipes
from vit_jax.extras.commands import vtab as tool
from vit_jax.extras.experiments import runs, vtab
from vit_jax.extras.experiments.studies import jobs, results
from vit_jax.extras.experiments.studies.store import RunStore, first_option
from vit_jax.extras.sources.vtab_tasks import TASKS

PAPER = pathlib.Path(__file__).parents[2] / "paper" / "table9_vtab.csv"
TWO = ("dtd", "svhn")
GRID = vtab.grid("0.01,0.001", "500,2500")
study_of = functools.partial(vtab.study, "ViT-B/16", "B.npz")


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch):
  monkeypatch.chdir(programs.ROOT)
  monkeypatch.setattr(
    runs, "in_new_process", lambda function, *arguments, plugins: function(*arguments)
  )


@pytest.mark.parametrize(
  ("model", "pretraining", "column", "mean"),
  [  # the means are those of Table 2, to the rounding of Table 9
    ("ViT-H/14", "JFT-300M", "ViT-H/14 JFT", 0.7763),
    ("ViT-L/16", "JFT-300M", "ViT-L/16 JFT", 0.7628),
    ("ViT-L/16", "ImageNet-21k", "ViT-L/16 I21k", 0.7272),
  ],
)
def test_the_papers_figures_are_table_9(model, pretraining, column, mean):
  study = vtab.study(model, "B.npz", pretraining=pretraining)
  rows = list(csv.DictReader(PAPER.read_text().splitlines()))
  published = results.in_paper(study)
  assert [list(cell.factors.values()) for cell in study.cells] == [
    [row["task"], row["group"]] for row in rows
  ]
  expected = {row["task"]: float(row[column]) / 100 for row in rows}
  assert published == pytest.approx(expected)
  assert statistics.fmean(published.values()) == pytest.approx(mean, abs=5e-4)
  assert model in study.paper.caption


def test_a_model_that_table_9_lacks_is_refused():
  assert study_of().paper is None
  message = (
    "Table 9 has no ViT-B/16 pre-trained on JFT-300M, but ViT-H/14 on JFT-300M, ViT-L/16 on "
    "JFT-300M, ViT-L/16 on ImageNet-21k; leave --pretraining out."
  )
  with pytest.raises(c.ConfigError, match=message):
    study_of(pretraining="JFT-300M")


def test_tasks_are_named_as_in_table_9_in_any_order():
  assert vtab.tasks("") == tuple(TASKS)
  assert vtab.tasks("SVHN, clevr-Dist,dtd") == ("dtd", "svhn", "clevr-dist")
  with pytest.raises(c.ConfigError, match="no task 'cifar100'; it has caltech101, cifar-100"):
    vtab.tasks("dtd,cifar100")


def test_a_mean_of_which_a_task_is_missing_is_left_out():
  assert study_of().means == (("task",), ("task", "group"))
  assert study_of(tasks=TWO).means == ()


def test_all_that_is_missing_is_listed_once(tmp_path, monkeypatch):
  monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
  with pytest.raises(c.ConfigError) as caught:
    vtab.check_data(tuple(TASKS))
  first, *others = str(caught.value).splitlines()
  assert first.startswith("The data of 19 of 19 tasks cannot be read")
  assert len(others) == 16
  for task in TASKS.values():
    (line,) = [line for line in others if f"`vit-jax prepare build {task.data}`" in line]
  assert line.startswith("  snorb-azim, snorb-elev: tfds:smallnorb: there is no prepared dataset")


def test_the_program(tmp_path, monkeypatch, capsys):
  """With runs that are done at once, and data that are there."""
  checked = []
  monkeypatch.setattr(vtab, "check_data", checked.append)
  ran = stub.Runs(monkeypatch, score=lambda config: 0.25)
  words = ["--source=B.npz", "--model=ViT-L/16", "--tasks=svhn,dtd", f"--workdir={tmp_path}"]
  for _ in range(2):
    tool.main([*words, "--seeds=1", "--pretraining=ImageNet-21k"])
    assert [one.data.train.source for one in ran.called] == ["vtab:dtd", "vtab:svhn"]
    assert checked.pop() == TWO
    printed = capsys.readouterr().out
    assert "DTD   natural  0.2500      1  0.7410" in printed
    assert "The paper: Table 9, ViT-L/16 pre-trained on ImageNet-21k; BiT-L" in printed


@pytest.mark.parametrize(
  ("rates", "steps", "message"),
  [
    ("0.1", "", "--learning-rates and --steps go together"),
    ("0.1", "500,5e2", "'5e2' is no number above 0"),
  ],
)
def test_wrong_grids(rates, steps, message):
  with pytest.raises(c.ConfigError, match=message):
    vtab.grid(rates, steps)


def test_no_run_that_chooses_reads_a_test_image(tmp_path):
  stage, store = study_of(tasks=TWO, candidates=GRID).cells[0].stage, RunStore(tmp_path)
  config_of = lambda run: recipes.resolve(run.recipe, run.overrides)
  for option in GRID:
    for job, task in zip(jobs.trials(stage, option), TWO, strict=True):
      config = config_of(store.run(job))
      assert config.data.train.source == f"vtab:{task}"
      assert config.data.train.split == "train800"
      assert [one.split for one in config.evaluate.values()] == ["val200"]
      assert config.schedule.learning_rate == option["schedule.learning_rate"]
      steps = option["duration.steps"]
      assert config.duration == c.Duration(steps=steps)
      without_weights = dataclasses.replace(config, init_from="")
      warmup = resolved.without_data(without_weights).schedule.warmup
      assert warmup == c.Duration(steps=100 if steps == 500 else 500)
  config = config_of(store.run_with(jobs.Job(stage, 0), first_option))
  assert [one.split for one in config.evaluate.values()] == ["test"]
  assert config.duration == c.Duration(steps=500)


def test_the_best_mean_over_the_tasks_is_chosen_then_scored_by_every_seed(tmp_path, monkeypatch):
  """A setting that is best on one task loses to one that is better on the mean."""
  worth = dict(zip(map(repr, GRID), [(0.9, 0.1), (0.6, 0.6), (0.5, 0.5), (0.6, 0.6)], strict=True))

  def score(config):
    if "test" in config.evaluate:
      return 0.5
    (setting,) = vtab.grid(str(config.schedule.learning_rate), str(config.duration.steps))
    return {"val200": worth[repr(setting)][config.data.train.source == "vtab:svhn"]}

  ran = stub.Runs(monkeypatch, score=score)
  stub.done(tmp_path, study_of(tasks=TWO, candidates=GRID, seeds=3))
  assert [list(one.evaluate) for one in ran.called] == [["val200"]] * 8 + [["test"]] * 6
  assert {one.duration.steps for one in ran.called[8:]} == {2500}
  tried = results.read_rows(tmp_path / "trials.csv")
  assert [float(row["score"]) for row in tried] == pytest.approx([0.5, 0.6, 0.5, 0.6])
  assert [row["chosen"] for row in tried] == ["", "yes", "", ""]
  assert {(row["cell"], row["stage"]) for row in tried} == {("all cells", "all stages")}
  stub.done(tmp_path, study_of(tasks=("dtd", "pets", "svhn"), seeds=3))
  # What was chosen is the recipe's setting, and done.
  assert [one.data.train.source for one in ran.called[14:]] == ["vtab:pets"] * 3


@pytest.mark.parametrize(
  ("override", "candidates", "key"),
  [
    ("seed=1", GRID, "seed"),
    ("duration.steps=9", GRID, "duration.steps"),
    ("seed=1", (), "seed"),
    ("init_from=other.npz", (), "init_from"),
  ],
)
def test_what_the_benchmark_sets_itself_is_not_overridden(override, candidates, key):
  with pytest.raises(c.ConfigError, match=f"--config.{key} is what this tool sets itself"):
    study_of(candidates=candidates, overrides=(f"--config.{override}",))


def asked(*arguments):
  return tool.asked(*tool.flags().parse_with_settings(["--source=B.npz", *arguments]))


def test_flags_of_the_tool():
  assert (asked().seeds, asked("--fast").seeds) == (3, 1)
  fast = asked("--fast").cells[0].stage.recipe
  assert fast == "configs/vtab.py:ViT-B/16,caltech101,smoke"
  study = asked("--learning-rates=0.1", "--steps=500", "--seeds=2")
  assert (study.cells[0].stage.choice.options, study.seeds) == (vtab.grid("0.1", "500"), 2)
  with pytest.raises(c.ConfigError, match="--fast has its own few steps"):
    asked("--fast", "--learning-rates=0.1", "--steps=500")
