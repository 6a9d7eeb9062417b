"""Wrong usage in one sentence, and the exit status of help."""

import pytest
from absl import flags

from vit_jax.config import command_line


@pytest.mark.parametrize(
  ("argument", "error", "message"),
  [
    ("few_shot.mine.seeds=1", KeyError("'mine'"), "config.few_shot.mine is not in the recipe"),
    ("data.evaluate.val.split=x", KeyError("'val'"), "config.data.evaluate.val is not in the rec"),
    (
      "data.mix.al.weight=2",
      KeyError('\'al\'\nDid you mean "all" instead of "al"?'),
      "config.data.mix.al is not in the recipe; new names can only be added in the recipe.",
    ),
    (
      "few_shot.mine.seed=1",
      KeyError(),
      "config.few_shot.mine.seed is not a setting; nearest: config.seed, config.few_shot.mine.",
    ),
    (
      "compute_dtype=float32",
      AttributeError(),
      "config.compute_dtype is not a setting; nearest: config.model.compute_dtype, ",
    ),
    ("seed.x=1", KeyError(), "config.seed.x is not a setting; nearest: config.seed."),
    ("nearest.a.test.sauce=", KeyError(), "config.nearest.a.test.sauce is not a setting; nearest:"),
    ("nearest.a.k=", KeyError(), "config.nearest.a.k is not a setting"),
    (
      "nearest.a.neighbours=x",
      flags.IllegalFlagValueError("flag --config.nearest.a.neighbours=x: no"),
      "config.nearest.a.neighbours='x' cannot be read as int; try 20.",
    ),
    ("few_shot.mine.seeds=1", ValueError("else"), "else"),
  ],
)
def test_keys_below_names(argument, error, message):
  assert command_line.wrong_usage([f"--config.{argument}"], error).startswith(message)


@pytest.mark.parametrize(
  "argument", ["--mode=a\nb", "--config.seed=a\nb", "--config=a\nb\x1b[2J.py"]
)
def test_a_line_break_in_a_value_is_none_of_the_message(argument):
  value = argument.partition("=")[2]
  error = ValueError(f"Traceback ...\nflag {argument}: {value} cannot be")
  said = command_line.wrong_usage([argument], error)
  assert said.endswith("cannot be")
  assert said.startswith("flag --")
  assert said.isprintable()


def test_what_is_said_at_the_end_is_one_line(capsys):
  with pytest.raises(SystemExit):
    command_line.leave("a\nb\r\x1b[2J\udc80ü", 2)
  assert capsys.readouterr().err == "vit_jax: a\\nb\\r\\x1b[2J\\udc80ü\n"


def missing(path):
  return OSError(f"Attempted\n[Errno 2] No such file or directory: {path!r}")


@pytest.mark.parametrize(
  ("arguments", "error", "message"),
  [
    (["--config=configs/vtap.py:7"], missing("configs/vtap.py"), "no recipe configs/vtap.py; ne"),
    (["--config", "configs/vtap.py"], missing("configs/vtap.py"), "nearest: configs/vtab.py, "),
    (["--config=a.py"], missing("images.csv"), "[Errno 2] No such file or directory: 'images.csv'"),
  ],
)
def test_a_file_that_is_not_there(arguments, error, message):
  assert message in command_line.wrong_usage(arguments, error)


@pytest.mark.parametrize(("argument", "status"), [("--help", 0), ("--config=mine.py", 1)])
def test_help_is_no_failure_but_a_recipe_that_ends_the_program_is(argument, status, monkeypatch):
  def end(argv):
    raise SystemExit(1)

  monkeypatch.setattr(flags, "FLAGS", end)
  with pytest.raises(SystemExit) as caught:
    command_line.parse(["program", argument])
  assert caught.value.code == status


@pytest.mark.parametrize(
  ("arguments", "value"),
  [
    ([], None),
    (["--workdir"], None),
    (["--workdir=a"], "a"),
    (["--workdir", "a"], "a"),
    (["-workdir", "a", "--config=b"], "a"),
    (["--config=b", "--workdir="], ""),
    (["--workdir=a", "--config=b", "--workdir", "c"], "c"),
  ],
)
def test_the_value_of_a_flag_on_any_command_line(arguments, value):
  assert command_line.value_of("workdir", ["main.py", *arguments]) == value


def test_a_command_without_arguments_is_told_what_is_missing(capsys):
  with pytest.raises(SystemExit) as ended:
    command_line.parse(["main.py"])
  assert ended.value.code == command_line.WRONG_USAGE
  assert "--config is missing; give a recipe" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the library that loads recipes
@pytest.mark.parametrize(
  ("group", "names"), [("config.data.evaluate", "'test', 'val'"), ("config.reconstruct", "none")]
)
def test_the_names_in_the_recipe_are_listed(tmp_path, group, names):
  recipe = tmp_path / "recipe.py"
  recipe.write_text(
    "import ml_collections\n"
    "def get_config():\n"
    "  sets = {'val': {}, 'test': {}}\n"
    "  return ml_collections.ConfigDict({'data': {'evaluate': sets}, 'reconstruct': {}})\n"
  )
  argv = ["main", f"--config={recipe}", f"--{group}.tset.source=folder:x"]
  said = command_line.wrong_usage(argv, KeyError("'tset'"))
  assert said.startswith(f"{group}.tset is not in the recipe, which has {names} there; new names")
