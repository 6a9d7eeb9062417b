"""The benchmark on VTAB-1k: the paper's figures, recipes, missing data, means."""

import csv
import dataclasses
import json
import pathlib

import numpy as np
import pytest

from tests import programs
from tools import vtab as tool
from vit_jax import config as c
from vit_jax import recipes
from vit_jax.data.sources.vtab_tasks import TASKS
from vit_jax.experiments import runs, vtab
from vit_jax.experiments.studies import jobs
from vit_jax.experiments.studies.jobs import Cost
from vit_jax.experiments.studies.runner import StudyRunner
from vit_jax.experiments.studies.store import RunStore, first_option

PAPER = pathlib.Path(__file__).parents[1] / "paper"
RECIPE = programs.ROOT / "configs" / "vtab.py"


def rows(name):
  return list(csv.DictReader((PAPER / name).read_text().splitlines()))


def test_the_papers_figures_are_table_9(monkeypatch):
  monkeypatch.chdir(programs.ROOT)
  found = [
    dict(task=task, group=group) | {model: str(score) for model, score in scores.items()}
    for group, tasks in vtab.paper().items()
    for task, scores in tasks.items()
  ]
  assert found == rows("table9_vtab.csv")
  assert [row["task"].lower() for row in found] == list(TASKS)


def benchmark(tmp_path, **changes):
  values = dict(
    model="ViT-B/16", source="B.npz", tasks=tuple(TASKS), smoke=False, folder=tmp_path / "v"
  )
  return vtab.Benchmark(**(values | changes))


class Runs:
  """Takes the place of processes; `called` notes their tasks, such as "dtd development".

  `score` gives the accuracy by the part, the place of the task in Table 9 among those of the
  benchmark, and the config.
  """

  def __init__(self, monkeypatch, some, score):
    self.called, self._some, self._score = [], some, score
    monkeypatch.setattr(runs.Children, "call", lambda children, *args: self._call(*args))

  def _call(self, command, output):
    _, task, *part = command[3].rpartition(":")[2].split(",")
    self.called.append(" ".join([task, *part]))
    config = recipes.resolve(command[3].removeprefix("--config="), command[5:])
    (name,), folder = config.evaluate, pathlib.Path(command[4].removeprefix("--workdir="))
    top1 = self._score("".join(part), self._some.tasks.index(task), config)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(c.to_dict(config)))
    step = config.duration.steps
    lines = [{"step": step, "data/epoch": 1.0}, {"step": step, f"{name}/top1": top1}]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return 0


def done(monkeypatch, some, score):
  """Does a benchmark; returns (what was called, the report)."""
  monkeypatch.chdir(programs.ROOT)
  ran, study = Runs(monkeypatch, some, score), vtab.study(some)
  runner = StudyRunner(study, RunStore(some.folder))
  every = jobs.of_study(study)
  assert runner.run(every, {repr(task): Cost(4, 8, 1e9) for task in every}, jobs=1) == []
  return ran.called, vtab.report(some, study)


def test_means_of_the_paper_are_those_of_its_table_2_and_ours_are_taken_alike(
  tmp_path, monkeypatch
):
  everything = benchmark(tmp_path)
  _, found = done(monkeypatch, everything, lambda part, index, config: (index + 1) / 32)
  # Of figures that the paper gives with one digit, so not to the last of Table 2's.
  published = list(found["score"]["paper"].values())
  assert published == pytest.approx([77.63, 76.28, 72.72], abs=0.02)
  assert [row["top1"] for row in found["tasks"]] == [100 * (i + 1) / 32 for i in range(19)]
  means = [np.mean([100 * (i + 1) / 32 for i in part]) for part in (range(7), range(7, 11))]
  means += [np.mean([100 * (i + 1) / 32 for i in part]) for part in (range(11, 19), range(19))]
  ours = [*(row["top1"] for row in found["groups"]), found["score"]["top1"]]
  assert ours == pytest.approx(means, rel=1e-12)
  vtab.write(everything, found)
  table = list(csv.reader((everything.folder / "vtab.csv").read_text().splitlines()))
  assert table[0] == ["task", "group", "top1", "std", *vtab.PAPER_MODELS.values()]
  assert len(table) == 1 + 19 + 3 + 1
  assert table[1] == ["Caltech101", "natural", "3.125", "", "95.3", "95.4", "90.8"]


def test_a_mean_of_which_a_task_is_missing_is_left_out(tmp_path, monkeypatch):
  some = benchmark(tmp_path, tasks=vtab.tasks("sNORB-Elev,resisc45, camelyon,eurosat,retinopathy"))
  _, found = done(monkeypatch, some, lambda part, index, config: 0.5)
  assert [row["task"] for row in found["tasks"]] == [
    "Camelyon",
    "EuroSAT",
    "Resisc45",
    "Retinopathy",
    "sNORB-Elev",
  ]
  assert [row["top1"] for row in found["groups"]] == [None, 50.0, None]
  assert found["score"]["top1"] is None
  assert vtab.table(found).splitlines() == [
    "task         group        top-1  ViT-H/14 JFT  ViT-L/16 JFT  ViT-L/16 I21k",
    "Camelyon     specialized   50.0          83.3          83.6           82.5",
    "EuroSAT      specialized   50.0          96.7          96.5           95.6",
    "Resisc45     specialized   50.0          91.4          89.7           85.2",
    "Retinopathy  specialized   50.0          76.6          77.1           75.3",
    "sNORB-Elev   structured    50.0          51.2          51.1           41.7",
    "mean         natural                     86.7          85.6           83.3",
    "mean         specialized   50.0          87.0          86.7           84.7",
    "mean         structured                  65.0          63.0           57.5",
    "mean         all 19                      77.6          76.3           72.7",
    "BiT-L (R152x4, JFT-300M), by Table 2: 76.29 ± 1.70 over all 19 tasks.",
  ]
  assert vtab.table(found | dict(smoke=True)).startswith("A smoke run")


def test_tasks_are_named_as_in_table_9_in_any_order():
  assert vtab.tasks("") == tuple(TASKS)
  assert vtab.tasks("SVHN, clevr-Dist,dtd") == ("dtd", "svhn", "clevr-dist")
  with pytest.raises(c.ConfigError, match="no task 'cifar100'; it has caltech101, cifar-100"):
    vtab.tasks("dtd,cifar100")


def checked(some):
  study = vtab.study(some)
  return vtab.checked_costs(some, StudyRunner(study, RunStore(some.folder)))


def test_all_that_is_missing_is_listed_once_before_anything_starts(tmp_path, monkeypatch):
  monkeypatch.chdir(programs.ROOT)
  monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
  with pytest.raises(c.ConfigError) as caught:
    checked(benchmark(tmp_path))
  first, *others = str(caught.value).splitlines()
  assert first.startswith("The data of 19 of 19 tasks cannot be read")
  assert len(others) == 16
  for task in TASKS.values():
    (line,) = [
      line for line in others if f"`python tools/prepare_data.py build {task.data}`" in line
    ]
  assert line.startswith("  snorb-azim, snorb-elev: tfds:smallnorb: there is no prepared dataset")


def test_the_program(tmp_path, monkeypatch, capsys):
  """With runs that are done at once, and data that are there."""
  monkeypatch.chdir(programs.ROOT)
  monkeypatch.setattr(vtab, "check_data", lambda benchmark: None)
  monkeypatch.setattr(runs, "in_new_process", lambda function, *arguments: function(*arguments))
  arguments = ["--source=B.npz", "--tasks=svhn,dtd", f"--workdir={tmp_path}", "--seeds=1"]
  ran = Runs(monkeypatch, tool.asked(*tool.flags().parse_with_settings(arguments)), lambda *_: 0.25)
  tool.main(arguments)
  assert ran.called == ["dtd", "svhn"]
  assert "DTD   natural       25.0          75.2" in capsys.readouterr().out
  tool.main([*arguments, "--format=json"])
  assert ran.called == ["dtd", "svhn"]
  found = json.loads(capsys.readouterr().out)
  assert [row["top1"] for row in found["tasks"]] == [25.0, 25.0]
  assert found["tasks"][0]["paper"] == dict(
    zip(vtab.PAPER_MODELS.values(), (75.2, 74.3, 74.1), strict=True)
  )


TWO = ("dtd", "svhn")
GRID = vtab.grid("0.01,0.001", "500,2500")


def test_the_grid_is_every_pair():
  assert [(one.learning_rate, one.steps) for one in GRID] == [
    (0.01, 500),
    (0.01, 2500),
    (0.001, 500),
    (0.001, 2500),
  ]
  assert vtab.grid("", "") == ()


@pytest.mark.parametrize(
  ("rates", "steps", "message"),
  [
    ("0.1", "", "--learning-rates and --steps go together"),
    ("0.1", "500,5e2", "'5e2' is no number above 0"),
    ("0.1", "500,500", "must hold each number once"),
  ],
)
def test_wrong_grids(rates, steps, message):
  with pytest.raises(c.ConfigError, match=message):
    vtab.grid(rates, steps)


def test_no_run_that_chooses_reads_a_test_image(tmp_path, monkeypatch):
  monkeypatch.chdir(programs.ROOT)
  study, store = (
    vtab.study(benchmark(tmp_path, tasks=TWO, settings=GRID, seeds=3)),
    RunStore(tmp_path / "v"),
  )
  stage = study.cells[0].stage
  for setting in GRID:
    trials = jobs.trials(stage, setting.option())
    for run, task in zip(map(store.run, trials), TWO, strict=True):
      config = recipes.resolve(run.recipe, run.overrides)
      assert config.data.train.source == f"vtab:{task}"
      assert config.data.train.split == "train800"
      assert [one.split for one in config.evaluate.values()] == ["val200"]
      assert config.schedule.learning_rate == setting.learning_rate
      assert config.duration == c.Duration(steps=setting.steps)
      assert config.schedule.warmup == c.Duration(steps=100 if setting.steps == 500 else 500)
  run = store.run_with(jobs.Job(stage, 0), first_option)
  config = recipes.resolve(run.recipe, run.overrides)
  assert [one.split for one in config.evaluate.values()] == ["test"]
  assert config.duration == c.Duration(steps=500)


def test_the_best_mean_over_the_tasks_is_chosen_then_scored_by_every_seed(tmp_path, monkeypatch):
  """A setting that is best on one task loses to one that is better on the mean."""
  of_setting = dict(zip(GRID, [(0.9, 0.1), (0.6, 0.6), (0.5, 0.5), (0.6, 0.6)], strict=True))
  of_seed = [(0.5, 0.25), (0.75, 0.5), (0.625, 0.5)]

  def score(part, index, config):
    if part != "development":
      return of_seed[config.seed][index]
    setting = vtab.Setting(config.schedule.learning_rate, config.duration.steps)
    return of_setting[setting][index]

  everything = benchmark(tmp_path, tasks=TWO, settings=GRID, seeds=3)
  called, found = done(monkeypatch, everything, score)
  assert sorted(called[:8]) == ["dtd development"] * 4 + ["svhn development"] * 4
  assert sorted(called[8:]) == ["dtd"] * 3 + ["svhn"] * 3
  assert found["setting"] == dict(learning_rate=0.01, steps=2500)
  assert [row["top1"] for row in found["validation"]] == pytest.approx([50, 60, 50, 60])
  for index, row in enumerate(found["tasks"]):
    column = [100 * pair[index] for pair in of_seed]
    assert row["top1"] == pytest.approx(np.mean(column))
    assert row["std"] == pytest.approx(np.std(column, ddof=1))
  said = vtab.table(found)
  assert "Validation, learning rate 0.01, 2,500 steps: 60.0 (chosen)" in said
  assert "Validation, learning rate 0.001, 2,500 steps: 60.0\n" in said
  more = dataclasses.replace(everything, tasks=("dtd", "pets", "svhn"), settings=())
  called, _ = done(monkeypatch, more, lambda part, index, config: 0.5)
  assert called == ["pets"] * 3  # what was chosen is the recipe's setting, and done


def test_a_score_has_the_deviation_of_the_seeds_scores(tmp_path, monkeypatch):
  """Table 2: not the mean of the tasks' deviations."""
  everything = benchmark(tmp_path, seeds=2)
  _, found = done(
    monkeypatch, everything, lambda part, index, one: 0.5 + 0.25 * ((index + one.seed) % 2)
  )
  of_seeds = [100 * (0.5 + 0.25 * 9 / 19), 100 * (0.5 + 0.25 * 10 / 19)]
  assert found["score"]["top1"] == pytest.approx(np.mean(of_seeds))
  assert found["score"]["std"] == pytest.approx(np.std(of_seeds, ddof=1))


@pytest.mark.parametrize(
  ("changes", "key"),
  [
    (dict(overrides=("--config.seed=1",)), "seed"),
    (dict(overrides=("--config.duration.steps=9",)), "duration.steps"),
    (dict(overrides=("--config.seed=1",), settings=()), "seed"),
    (dict(overrides=("--config.init_from=other.npz",)), "init_from"),
  ],
)
def test_what_the_benchmark_sets_itself_is_not_overridden(tmp_path, changes, key):
  with pytest.raises(c.ConfigError, match=f"--config.{key} is what .* sets"):
    vtab.study(benchmark(tmp_path, **(dict(settings=GRID) | changes)))


def asked(*arguments):
  return tool.asked(*tool.flags().parse_with_settings(["--source=B.npz", *arguments]))


def test_flags_of_the_tool():
  assert (asked().seeds, asked().settings) == (3, ())
  assert asked("--fast").seeds == 1
  found = asked("--learning-rates=0.1", "--steps=500", "--seeds=2")
  assert (found.settings, found.seeds) == ((vtab.Setting(0.1, 500),), 2)
  with pytest.raises(c.ConfigError, match="--fast has its own few steps"):
    asked("--fast", "--learning-rates=0.1", "--steps=500")
