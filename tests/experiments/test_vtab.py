"""The benchmark on VTAB-1k: the paper's figures, recipes, missing data, means."""

import csv
import dataclasses
import json
import pathlib
import re

import numpy as np
import pytest

from tests import programs
from vit_jax import config as c
from vit_jax import recipes
from vit_jax.data import images
from vit_jax.data.batches import train_transform
from vit_jax.data.sources.vtab_tasks import TASKS
from vit_jax.experiments import runs, vtab
from vit_jax.experiments.studies import jobs
from vit_jax.experiments.studies.jobs import Cost
from vit_jax.experiments.studies.runner import StudyRunner
from vit_jax.experiments.studies.store import RunStore
from vit_jax.learning.optimizers.sgd import SGD
from vit_jax.recipes.vtab_finetuning import PREPARATIONS

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
    (name,), folder = config.data.evaluate, pathlib.Path(command[4].removeprefix("--workdir="))
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


@pytest.mark.parametrize("task", TASKS)
def test_the_recipe_is_the_row_of_table_4(task):
  (row,) = [row for row in rows("table4_finetuning.csv") if row["dataset"].startswith("VTAB")]
  config = recipes.load(f"{RECIPE}:ViT-L/16,{task}")
  assert config.duration == c.Duration(steps=int(row["steps"]))
  assert config.schedule == c.Schedule(
    learning_rate=float(row["base_lr_grid"]), decay="cosine", warmup=c.Duration(steps=500)
  )
  assert config.optimizer == SGD(momentum=0.9, clip_norm=1.0)
  assert config.batch_size == 512
  assert config.new_head
  assert config.model.num_classes == TASKS[task].num_classes
  assert config.data.train == c.Dataset(f"vtab:{task}", "train800val200")
  assert config.data.evaluate == {"test": c.EvaluationSet(f"vtab:{task}", "test")}
  assert config.data.image_size == 384
  assert re.search(rf"\b{task}[, .]", vtab_docstring())


def vtab_docstring():
  return RECIPE.read_text().split('"""')[1].replace("\n", " ")


@pytest.mark.parametrize(("part", "steps"), [("development", 2500), ("smoke", 4)])
@pytest.mark.parametrize("task", ["svhn", "snorb-azim"])
def test_other_parts_do_not_look_at_the_test_set(part, steps, task):
  config = recipes.load(f"{RECIPE}:ViT-B/16,{task},{part}")
  assert config.data.train.split == "train800"
  assert [data.split for data in config.data.evaluate.values()] == ["val200"]
  assert config.duration.steps == steps


@pytest.mark.parametrize(
  ("model", "side", "small"),
  [("ViT-H/14", 378, 56), ("ViT-B/32", 384, 64), ("R50x1+ViT-B/16", 384, 64), ("R50x1", 384, 64)],
)
def test_images_are_as_large_as_the_patches_allow(model, side, small):
  assert recipes.load(f"{RECIPE}:{model},dtd").data.image_size == side
  assert recipes.load(f"{RECIPE}:{model},dtd,smoke").data.image_size == small


# Without it the label could become wrong: counts and distances are lost by crops, places, numerals
# and directions by flips.
UNCROPPED = {"clevr-count", "clevr-dist", "dmlab", "dspr-loc", "dspr-ori", "kitti-dist"}
UNFLIPPED = {"svhn", "dspr-loc", "dspr-ori", "snorb-azim"}


@pytest.mark.parametrize("task", TASKS)
def test_training_images_are_cropped_and_flipped_where_the_label_survives(task):
  data = recipes.load(f"{RECIPE}:ViT-B/16,{task}").data
  assert data.resized_side() == (0 if task in UNCROPPED else 448)
  assert data.flip == (task not in UNFLIPPED)
  data = dataclasses.replace(data, image_size=24)
  prepare = train_transform(data)
  image = np.random.default_rng(0).integers(0, 256, (31, 40, 3), dtype=np.uint8)
  whole = images.evaluate_image(image, size=24, resize=0, max_pixels=10**6)
  found = [prepare(image, rng=np.random.default_rng(seed)) for seed in range(8)]
  same = [np.array_equal(one, whole) for one in found]
  mirrored = [np.array_equal(one, whole[:, ::-1]) for one in found]
  if task not in UNCROPPED:
    assert not any(same + mirrored)
  else:
    assert all(a or b for a, b in zip(same, mirrored, strict=True))
    assert any(mirrored) == (task not in UNFLIPPED)


def test_the_page_lists_the_same_tasks():
  page = (programs.ROOT / "docs" / "decisions" / "vtab-images.md").read_text()
  cells = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
  listed = {
    name: (crop, flip, why)
    for row in cells[1:]
    for *names, crop, flip, why in [[*row[0].split(", "), *row[1:]]]
    for name in names
  }
  yes = {True: "yes", False: "no"}
  assert listed == {
    name: (yes[row.crop], yes[row.flip], row.why) for name, row in PREPARATIONS.items()
  }
  assert list(PREPARATIONS) == list(TASKS)


@pytest.mark.parametrize(
  ("argument", "message"),
  [
    ("ViT-B/16", "is not MODEL,TASK"),
    ("ViT-B/16,birds", "'birds' is none of caltech101"),
    ("ViT-B/16,dtd,test", "'test' is none of all, development, smoke"),
    ("ViT-Q/16,dtd", "model cannot be used"),
  ],
)
def test_wrong_arguments(argument, message):
  with pytest.raises(c.ConfigError, match=message):
    recipes.load(f"{RECIPE}:{argument}")


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


def test_a_wrong_setting_is_found_before_anything_starts(tmp_path, monkeypatch):
  monkeypatch.chdir(programs.ROOT)
  with pytest.raises(c.ConfigError, match="image_size=100 is not divisible into the patches"):
    checked(benchmark(tmp_path, overrides=("--config.data.image_size=100",)))
  with pytest.raises(c.ConfigError, match="model cannot be used: name='ViT-Q/16' is no model"):
    checked(benchmark(tmp_path, model="ViT-Q/16"))


def test_the_weights_are_named_once(tmp_path):
  some = benchmark(tmp_path, overrides=("--config.init_from=other.npz",))
  with pytest.raises(c.ConfigError, match=r"--config\.init_from is what --source sets"):
    vtab.study(some)


def test_a_run_for_each_task(tmp_path, monkeypatch):
  monkeypatch.chdir(programs.ROOT)
  some = benchmark(tmp_path, tasks=("dtd", "svhn"), seeds=2, overrides=("--config.batch_size=8",))
  store = RunStore(some.folder)
  found = [store.run(job) for job in jobs.of_study(vtab.study(some))]
  assert [run.recipe for run in found] == [
    f"configs/vtab.py:ViT-B/16,{task}" for task in ("dtd", "dtd", "svhn", "svhn")
  ]
  assert len({run.folder for run in found}) == 4
  for seed, run in enumerate(found[:2]):
    settings = ("--config.init_from=B.npz", "--config.batch_size=8", f"--config.seed={seed}")
    assert run.overrides == settings
  smoke = benchmark(tmp_path, tasks=("dtd",), smoke=True)
  (job,) = jobs.of_study(vtab.study(smoke))
  assert store.run(job).recipe == "configs/vtab.py:ViT-B/16,dtd,smoke"


@pytest.mark.parametrize(
  "changes",
  [
    dict(model="ViT-L/16"),
    dict(source="L.npz"),
    dict(smoke=True),
    dict(overrides=("--config.batch_size=1",)),
  ],
)
def test_another_benchmark_in_the_folder_uses_no_run_of_the_first(tmp_path, monkeypatch, changes):
  score = lambda part, index, config: 0.5
  one = benchmark(tmp_path, tasks=("dtd", "pets"))
  assert done(monkeypatch, one, score)[0] == ["dtd", "pets"]
  assert done(monkeypatch, benchmark(tmp_path, tasks=("dtd",)), score)[0] == []
  other = benchmark(tmp_path, tasks=("dtd",), **changes)
  assert len(done(monkeypatch, other, score)[0]) == 1
  assert done(monkeypatch, one, score)[0] == []


def test_the_program(tmp_path, monkeypatch, capsys):
  """With runs that are done at once, and data that are there."""
  from tools import vtab as tool

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
