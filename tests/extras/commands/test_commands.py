"""The command vit-jax: its commands, the recipes that train, finetune and evaluate stand for."""

import importlib
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import pytest

import vit_jax
from tests.programs import ROOT, environment, message
from vit_jax.config import ConfigError
from vit_jax.extras.commands import main, runs


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch, tmp_path):
  monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
  ("line", "expected"),
  [
    ("train vit_digits", "--config=vit_digits"),
    ("train hyperrule:R50x1,pets", "--config=hyperrule:R50x1,pets"),
    ("train photos", "--config=train:photos"),
    ("train photos/", "--config=train:photos"),
    ("train /", "--config=train:/"),
    ("train photos,ViT-S/4", "--config=train:photos,ViT-S/4"),
    ("train tfds:cifar10", "--config=train:tfds:cifar10"),
    ("train mine.py", "--config=mine.py"),
    ("train list.csv", "--config=train:list.csv"),
    ("train --config=vit_digits --workdir=w", "--config=vit_digits --workdir=w"),
    ("train vit_digits --config.seed=1", "--config=vit_digits --config.seed=1"),
    ("finetune w.npz photos", "--config=finetune:w.npz,photos"),
    ("finetune runs/w/ photos//", "--config=finetune:runs/w,photos"),
    ("finetune ViT-B/16 pets --config.seed=1", "--config=finetune:ViT-B/16,pets --config.seed=1"),
    ("evaluate w", "--workdir=w --mode=evaluate"),
    ("evaluate w.npz photos", "--config=evaluate:w.npz,photos --mode=evaluate"),
    ("evaluate --workdir=w", "--mode=evaluate --workdir=w"),
    ("evaluate w --config=evaluate:v2", "--workdir=w --mode=evaluate --config=evaluate:v2"),
    ("evaluate w.npz data --workdir=w", "--config=evaluate:w.npz,data --mode=evaluate --workdir=w"),
  ],
)
def test_what_the_main_program_is_given(line, expected):
  for name in ("mine.py", "list.csv"):
    pathlib.Path(name).touch()
  command, *arguments = line.split()
  assert " ".join(runs.main_arguments(command, arguments)) == expected


def test_a_folder_is_data_even_if_a_recipe_has_its_name():
  pathlib.Path("vit_digits").mkdir()
  assert runs.main_arguments("train", ["vit_digits"]) == ["--config=train:vit_digits"]


@pytest.mark.parametrize("line", ["train a b", "finetune w.npz", "evaluate a b c"])
def test_too_many_names_or_too_few(line):
  command, *arguments = line.split()
  with pytest.raises(ConfigError, match=f"vit-jax {command} takes vit-jax {command} [A-Z]"):
    runs.main_arguments(command, arguments)


@pytest.mark.parametrize(
  ("line", "message"),
  [
    ("train photos --config=mine.py", "photos means --config=train:photos; .* or --config=mine.py"),
    ("finetune w.npz data -config=a", "means --config=finetune:w.npz,data; leave out .* -config=a"),
    ("evaluate w.npz data --config=a", "means --config=evaluate:w.npz,data; .* or --config=a"),
    ("evaluate a --workdir=b", "evaluate a means --workdir=a; .* or --workdir=b"),
  ],
)
def test_names_beside_the_flag_that_they_stand_for(line, message):
  command, *arguments = line.split()
  with pytest.raises(ConfigError, match=message):
    runs.main_arguments(command, arguments)


def test_every_command_is_a_module_and_every_tool_of_users_is_a_command():
  for name in {*main.COMMANDS} - {*main.OF_RUNS}:
    module = importlib.import_module(f"{main.__package__}.{name.replace('-', '_')}")
    assert callable(module.main)
  doors = [path.read_text() for path in (ROOT / "tools").glob("*.py")]
  named = {match[1] for text in doors if (match := re.search(r'^  run\("(.+)"\)$', text, re.M))}
  assert named == {*main.COMMANDS} - {*main.OF_RUNS}


def test_help_version_and_completion(capsys, monkeypatch):
  said = {}
  for word in ("--help", "--version", "completion"):
    monkeypatch.setattr(sys, "argv", ["vit-jax", word])
    main.run()
    said[word] = capsys.readouterr().out
  assert all(f"  {name} " in said["--help"] for name in main.COMMANDS)
  assert said["--version"].strip() == vit_jax.__version__
  complete = f'{said["completion"]}\ncompgen -W "$(complete -p vit-jax | cut -d\'"\' -f2)" comp'
  assert "compile-check" in said["completion"]
  assert subprocess.run(["bash", "-c", complete]).returncode in (0, 1)


def vit_jax_command(*arguments):
  code = "from vit_jax.extras.commands.main import run; run()"
  command = [sys.executable, "-c", code, *arguments]
  return subprocess.run(command, env=environment(), capture_output=True, text=True)


def test_an_unknown_command():
  result = vit_jax_command("trian")
  assert (result.returncode, message(result)) == (
    2,
    "vit_jax: vit-jax has no command 'trian'; nearest: train.",
  )


def test_a_run_by_name_in_an_empty_folder(tmp_path):
  small = "duration.steps=2 schedule.warmup.steps=1 report=False model.depth=1 model.width=16"
  small += " model.mlp_dim=32 model.heads=2"
  trained = vit_jax_command("train", "vit_digits", *(f"--config.{x}" for x in small.split()))
  assert trained.returncode == 0, trained.stderr
  assert (tmp_path / "workdirs" / "vit_digits" / "checkpoints" / "2").is_dir()
  (line,) = [line for line in trained.stdout.splitlines() if line.startswith("Next: ")]
  _, command, *words = shlex.split(line)
  assert shutil.which(command)
  assert words[:3] == ["export", "--source", "workdirs/vit_digits"]


MISSING = [
  "probe none.npz photos",
  "probe w.npz none",
  "search none.npz photos q.jpg",
  "search w.npz photos q.jpg",
  "predict --source none.npz --images photos",
  "predict --source w.npz --images none.png",
  "export --source none.npz --output o.npz",
  "visualize filters --source none.npz --output o",
  "visualize attention --source w.npz --images none.png --output o",
]
EACH = """
import sys
from vit_jax.extras.commands import main
for line in sys.argv.pop(1).splitlines():
  sys.argv[1:] = line.split()
  try:
    main.run()
  except SystemExit as left:
    print(left.code, "jax" in sys.modules)
"""


def test_a_path_that_is_not_there_is_told_before_slow_imports():
  pathlib.Path("w.npz").touch()
  pathlib.Path("photos").mkdir()
  # JAX is imported to check variables of its own, so there are none.
  clean = {key: x for key, x in environment().items() if not key.startswith(("JAX_", "XLA_"))}
  result = subprocess.run(
    [sys.executable, "-c", EACH, "\n".join(MISSING)],
    capture_output=True,
    text=True,
    env=clean,
  )
  assert result.stdout.splitlines() == ["2 False"] * len(MISSING), result.stderr
  told = result.stderr.splitlines()
  assert len(told) == len(MISSING)
  assert all("does not exist" in line or "is no file" in line for line in told)
