"""The choice of a learning rate, from its command line to its results."""

import json

import pytest
from PIL import Image

from tests.extras.experiments.studies import stub
from vit_jax import config as c
from vit_jax import recipes
from vit_jax.config import recipe_file
from vit_jax.extras.commands import sweep as tool
from vit_jax.extras.experiments import runs, sweep
from vit_jax.extras.experiments.studies import execution, jobs, results, step_time, transfer
from vit_jax.extras.experiments.studies.store import RunStore
from vit_jax.extras.experiments.sweep import RATE
from vit_jax.recipes import TASKS

RECIPE = """
from vit_jax.config import *
from vit_jax.learning.optimizers.sgd import SGD
from vit_jax.evaluation.classification import Classification

def get_config(part):
  train, scored = {"part": ("[:60%]", "[60%:80%]"), "all": ("[:80%]", "[80%:]")}[part]
  sets = {part: Classification("folder:FOLDER", scored)}
  return to_config_dict(Config(
    batch_size=2, duration=Duration(steps=1), evaluate_every=Duration(steps=1), optimizer=SGD(),
    model=Model(name="ViT-Ti/16", depth=1, width=16, mlp_dim=32, heads=2, num_classes=2),
    data=Data(train=Dataset("folder:FOLDER", train), image_size=16), evaluate=sets))
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
  """A recipe with the parts "part" and "all", whose images are there; checks stay here."""
  for name, colour in (("dark", 10), ("light", 200)):
    (tmp_path / "images" / name).mkdir(parents=True)
    for index in range(5):
      Image.new("RGB", (16, 16), (colour,) * 3).save(tmp_path / "images" / name / f"{index}.png")
  recipe = tmp_path / "mine.py"
  recipe.write_text(RECIPE.replace("FOLDER", str(tmp_path / "images")))
  monkeypatch.setattr(
    runs, "in_new_process", lambda function, *a, plugins, **options: function(*a, **options)
  )
  return recipe


def study_of(recipe, learning_rates=(0.3, 0.01), seeds=2, **parts):
  parts = dict(learning_rates=learning_rates, seeds=seeds) | parts
  return sweep.study(f"{recipe}:part", f"{recipe}:all", **parts)


def test_settings_of_the_runs(mine, tmp_path):
  """Holds with any other overrides, also of the evaluation's frequency."""
  overrides = ("--config.evaluate_every.epochs=2", "--config.batch_size=4")
  (cell,) = study_of(mine, overrides=overrides).cells
  store = RunStore(tmp_path)
  resolved = lambda run: recipes.resolve(run.recipe, run.overrides)
  grid = [resolved(store.run(job)) for job in jobs.trials_of_all(cell.stage)]
  best = lambda stage: {RATE: 0.3} if stage.has_trials() else {}
  tests = [resolved(store.run_with(jobs.Job(cell.stage, seed), best)) for seed in (0, 1)]
  assert [(x.seed, x.schedule.learning_rate) for x in grid] == [(0, 0.01), (0, 0.3)]
  assert [(x.seed, x.schedule.learning_rate) for x in tests] == [(0, 0.3), (1, 0.3)]
  assert [x.evaluate_every for x in grid] == [c.Duration(epochs=2.0)] * 2
  assert [x.evaluate_every for x in tests] == [c.Duration()] * 2
  assert {x.batch_size for x in grid + tests} == {4}


def test_one_rate_is_not_tried(mine, tmp_path, monkeypatch):
  ran = stub.Runs(monkeypatch, score=lambda config: {"all": 0.5})
  _, lines = stub.done(tmp_path / "s", study_of(mine, (0.3,), seeds=1))
  assert [line.mean for line in lines] == [0.5]
  assert [list(config.evaluate) for config in ran.called] == [["all"]]


def test_every_set_of_the_final_recipe_has_its_mean_and_the_runs_are_shared(
  mine, tmp_path, monkeypatch
):
  """As ReaL beside ImageNet's own labels; the set that is called test comes first."""
  more = 'sets |= {"test": sets["all"]} if part == "all" else {}\n  return'
  mine.write_text(mine.read_text().replace("return", more))
  scores = dict(all=(0.75, 0.875), test=(0.5, 0.625))
  ran = stub.Runs(
    monkeypatch,
    score=lambda config: (
      {name: values[config.seed] for name, values in scores.items()}
      if "test" in config.evaluate
      else {"part": config.schedule.learning_rate}
    ),
  )
  _, lines = stub.done(tmp_path / "s", study_of(mine))
  assert {line.cell: line.mean for line in lines} == dict(test=0.5625, all=0.8125)
  assert [line.cell for line in lines] == ["test", "all"]
  assert len(ran.called) == 2 + 2


@pytest.mark.parametrize(("of_rule", "best"), [(0.75, 0.003), (0.5, 0.01)])
def test_a_rule_is_chosen_if_it_is_better_on_the_development_part(
  mine, tmp_path, monkeypatch, of_rule, best
):
  """Of equally good candidates the smallest rate is; an override holds for the rule too."""
  rule = {RATE: 0.003, "duration.steps": 9, "batch_size": 2}
  part = {0.003: of_rule, 0.01: 0.5, 0.3: 0.5}
  ran = stub.Runs(
    monkeypatch,
    score=lambda config: dict.fromkeys(config.evaluate, part[config.schedule.learning_rate]),
  )
  stub.done(tmp_path / "s", study_of(mine, rule=rule, overrides=("--config.batch_size=4",)))
  tried, last = results.read_rows(tmp_path / "s" / "trials.csv"), ran.called[-1]
  assert [(row[RATE], float(row["score"])) for row in tried] == [
    *(("0.01", 0.5), ("0.3", 0.5), ("0.003", of_rule))
  ]
  assert [row["chosen"] for row in tried].count("yes") == 1
  assert (last.schedule.learning_rate, last.batch_size) == (best, 4)
  assert last.duration.steps == (9 if best == 0.003 else 1)
  assert list(last.evaluate) == ["all"]


@pytest.mark.parametrize(
  ("override", "message"),
  [
    ("seed=1", "--config.seed is what this tool sets itself; .* give --learning-rates or --seeds"),
    ("schedule.learning_rate=1", "--config.schedule.learning_rate is what this tool sets"),
    ("evaluate.part.source=", "mine.py:part scores 0 sets"),
    ("evaluate.more.source=digits", "mine.py:part scores 2 sets"),
  ],
)
def test_overrides_that_are_refused(mine, override, message):
  with pytest.raises(c.ConfigError, match=message):
    study_of(mine, overrides=(f"--config.{override}",))


@pytest.mark.parametrize(
  ("text", "message"),
  [
    ("", "must hold each number once"),
    ("0.1,-0.3", "'-0.3' is no number above 0"),
    ("0.1,0.3;1", "'0.3;1' is no number"),
    ("0.1,1e-1", "must hold each number once"),
  ],
)
def test_wrong_grids(text, message):
  with pytest.raises(c.ConfigError, match=message):
    sweep.rates(text)


def asked(*arguments):
  """(the stage that is scored, its cells, the name of the folder) of a command line."""
  study, folder = tool.asked(*tool.flags().parse_with_settings(arguments))
  return study.cells[0].stage, [cell.label for cell in study.cells], folder


@pytest.mark.parametrize("task", TASKS)
def test_a_task_of_the_paper(task):
  stage, cells, folder = asked("--model=ViT-B/16", "--task", task, "--source", "B 16.npz")
  assert stage.recipe == f"configs/finetune.py:ViT-B/16,{task}"
  assert stage.choice.recipes == (f"{stage.recipe},development",)
  assert stage.choice.options == tuple({RATE: rate} for rate in TASKS[task].learning_rates)
  assert (stage.settings["init_from"], cells) == ("B 16.npz", ["test"])
  assert folder == f"sweep-finetune-ViT-B_16,{task}"


def test_real_and_the_hyperrule():
  stage, cells, _ = asked("--model=R50x1", "--task=imagenet", "--real", "--hyperrule")
  assert stage.choice.recipes == ("configs/finetune.py:R50x1,imagenet,development",)
  assert stage.recipe == "configs/finetune.py:R50x1,imagenet,real"
  assert stage.choice.options[-1] == transfer.hyperrule("imagenet")
  assert cells == ["test", "real"]


@pytest.mark.parametrize(
  ("model", "task", "words"),
  [
    ("R50x1", "pets", []),
    ("R50x1", "pets", ["--config.data.image_size=224"]),
    ("R50x1", "pets", ["--config.data.image_size=224", "--config.data.train_resize=256"]),
    ("ViT-L/16", "imagenet", []),
  ],
)
def test_the_rule_that_is_tried_is_that_of_its_recipe(model, task, words):
  stage, *_ = asked(f"--model={model}", f"--task={task}", "--hyperrule", *words)
  texts = {key: str(value) for key, value in stage.choice.options[-1].items()}
  tried = recipe_file.replaced(recipes.resolve(stage.choice.recipes[0], words), texts)
  recipe = recipes.resolve(f"hyperrule:{model},{task},development", words)
  for group in ("schedule", "objective"):
    assert getattr(tried, group) == getattr(recipe, group)
  for key in ("image_size", "train_resize"):
    assert getattr(tried.data, key) == getattr(recipe.data, key)
  for key in ("clip_norm", "ema"):
    assert getattr(tried.optimizer, key) == getattr(recipe.optimizer, key)


@pytest.fixture
def words(mine, tmp_path):
  """The flags of a sweep."""
  flags = [f"--development={mine}:part", f"--final={mine}:all", "--seeds=2"]
  return [*flags, "--learning-rates=0.25,0.125", f"--workdir={tmp_path / 's'}"]


def test_a_sweep_from_its_command_to_its_results(words, tmp_path, monkeypatch, capsys):
  ran = stub.Runs(monkeypatch, score=lambda one: dict.fromkeys(one.evaluate, one.seed / 4 + 0.5))
  called = lambda: [(*one.evaluate, one.schedule.learning_rate, one.seed) for one in ran.called]
  tool.main([*words, "--commands"])
  commands = capsys.readouterr().out.splitlines()
  assert [command.split()[:3] for command in commands] == [["python", "-m", "vit_jax.main"]] * 2
  assert ["rate=0.125" in command for command in commands] == [True, False]
  tool.main([*words, "--only=0:1"])
  assert called() == [("part", 0.25, 0)]
  tool.main([*words, "--format=json"])
  assert called()[1:] == [("part", 0.125, 0), ("all", 0.125, 0), ("all", 0.125, 1)]
  (row,) = json.loads(capsys.readouterr().out)
  assert (json.loads(row["chosen"]), row["mean"]) == ({RATE: 0.125}, 0.625)
  page = (tmp_path / "s" / "results.md").read_text()
  assert "| all | final | schedule.learning_rate=0.125 | part/top1 | 0.5000 | yes |" in page
  assert "<!-- tried -->" in (tmp_path / "s" / "figure.svg").read_text()
  tool.main([*words, "--commands"])
  assert capsys.readouterr().out == ""
  tool.main([*words, "--seeds=3", "--learning-rates=0.5,0.25,0.125"])  # more of both
  assert called()[4:] == [("part", 0.5, 0), ("all", 0.125, 2)]


def test_no_command_is_printed_that_starts_from_a_run_that_still_trains(words, monkeypatch, capsys):
  monkeypatch.setattr(execution, "still_trains", lambda read: "w still trains.")
  with pytest.raises(SystemExit, match="1"):
    tool.main([*words, "--commands"])
  said = capsys.readouterr()
  assert (said.out, "w still trains." in said.err) == ("", True)


def test_a_rate_is_not_chosen_on_test_images(mine, words, tmp_path, monkeypatch, capsys):
  ran = stub.Runs(monkeypatch)
  mine.write_text(mine.read_text().replace("[60%:80%]", "[60%:]"))
  with pytest.raises(SystemExit, match="2"):
    tool.main(words)
  assert "but both have" in capsys.readouterr().err
  assert not ran.called
  assert not (tmp_path / "s").exists()


def test_a_plan_starts_nothing(words, tmp_path, monkeypatch, capsys):
  ran = stub.Runs(monkeypatch)
  monkeypatch.setattr(step_time, "measured_speed", lambda *_: step_time.Speed(6.0, 1.0, 1.0))
  tool.main([*words, "--plan"])
  lines = capsys.readouterr().out.splitlines()
  assert lines[0].split()[-2:] == ["time", "here"]
  assert lines[2].split()[:6] == ["all,", "shared", "runs", "once", "4", "4"]  # runs, steps
  assert not ran.called
  assert not (tmp_path / "s").exists()


def test_the_command_of_a_sweep_begins_the_same_sweep(words):
  """As a script for SLURM has it."""
  words += ["--jobs=3", "--slurm=x.sh", "--source=it's here.npz", "--config.batch_size=4"]
  parsed = tool.flags().parse_with_settings(words)
  command = tool.command.words("sweep", *parsed)
  assert command[:2] == ["vit-jax", "sweep"]
  assert not {"--jobs=3", "--slurm=x.sh"} & {*command}
  assert tool.asked(*tool.flags().parse_with_settings(command[2:])) == tool.asked(*parsed)
