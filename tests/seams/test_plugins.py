"""A module of a user adds its own parts, without a fork: config.plugins."""

import dataclasses
import importlib
import json
import sys

import pytest
from absl.testing import flagsaver
from PIL import Image

import vit_jax
from tests.extras.experiments.test_sweep import RECIPE
from tests.seams import program
from vit_jax import api, registry
from vit_jax.config import ConfigError, command_line, plugins, recorded, to_dict
from vit_jax.config.as_recipe import as_recipe
from vit_jax.config.tool_flags import ToolFlags
from vit_jax.extras.commands import sweep
from vit_jax.storage import checkpoint
from vit_jax.training import start

pytestmark = pytest.mark.usefixtures("one_device")

NAME = "plugin_of_a_user"
TEXT = """
import dataclasses
from vit_jax import registry
from vit_jax.config import Augmentation
from vit_jax.config.fields import name_of_kind, setting
from vit_jax.training.loop import Callback

@dataclasses.dataclass(frozen=True)
class Dark(Augmentation):
  kind: str = name_of_kind("dark", "less light")
  by: int = setting(2, "divisor", low=1, high=8)

  def draw(self, rng, side):
    return [lambda pixels: pixels // self.by]

class Steps(Callback):
  def __init__(self, run, session):
    self._folder, self._updates = session.folder, 0

  @classmethod
  def evaluated(cls, folder):
    (folder / "evaluated.txt").write_text("yes")

  def update(self, update):
    def counted(state, batch):
      self._updates += 1
      return update(state, batch)
    return counted

  def end(self, moment):
    (self._folder / "steps.txt").write_text(f"{self._updates} of {moment.step}")

registry.AUGMENTATIONS["dark"] = f"{__name__}:Dark"
registry.CALLBACKS["steps"] = f"{__name__}:Steps"
"""
WORDS = (
  f"--config.plugins={NAME}",
  "--config.data.augment=[{'kind': 'dark', 'by': 3}]",
  "--config.duration.epochs=0",
  "--config.duration.steps=2",
)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
  (tmp_path / f"{NAME}.py").write_text(TEXT)
  monkeypatch.syspath_prepend(tmp_path)
  with flagsaver.flagsaver():
    yield tmp_path
  forget()


def forget():
  """As in another process, which has not imported the module."""
  sys.modules.pop(NAME, None)
  for lines, key in ((registry.AUGMENTATIONS, "dark"), (registry.CALLBACKS, "steps")):
    if key in lines:
      del lines[key]


def parsed(*words):
  return command_line.parse(["main", "--config=configs/vit_digits.py", *words]).config


def test_what_it_registers_is_named_checked_used_and_recorded(tmp_path):
  assert parsed(*WORDS).data.augment[0].by == 3
  with pytest.raises(SystemExit):
    parsed(*WORDS, "--config.data.augment=[{'kind': 'dark', 'by': 9}]")
  run = tmp_path / "run"
  assert program.run(run, *WORDS)
  assert (run / "steps.txt").read_text() == "2 of 2"
  assert program.run(run, *WORDS, mode="evaluate")
  assert (run / "evaluated.txt").read_text() == "yes"
  assert json.loads((run / "config.json").read_text())["plugins"] == NAME
  assert f"the code of {NAME}" in checkpoint.described(run)[1]["program"]
  assert recorded.read_config(run).data.augment[0].by == 3


def test_a_record_imports_nothing(tmp_path):
  plugins.load(NAME)
  run = tmp_path / "run"
  assert program.run(run, *WORDS)
  forget()
  for read in (recorded.read_config, lambda folder: start.read_recorded(folder).config):
    with pytest.raises(ConfigError, match=rf"recorded with config\.plugins='{NAME}', and"):
      read(run)
  assert NAME not in sys.modules
  flags = ToolFlags("predict")
  flags.add_source()
  assert flags.parse_args(["--source", str(run), "--plugins", NAME]).plugins == NAME
  assert recorded.read_config(run).plugins == NAME


@pytest.fixture
def launched(monkeypatch):
  """The settings that would be trained."""
  seen = []
  monkeypatch.setattr(api.launch, "launch", lambda config, *_, **__: seen.append(config))
  return seen


def test_what_a_program_imports_itself_is_recorded_too(tmp_path, monkeypatch, launched):
  monkeypatch.setattr(registry.STORAGES, "_lines", dict(registry.STORAGES._lines))
  importlib.import_module(NAME)
  registry.STORAGES["own"] = "__main__:no other program can import it"
  config = vit_jax.recipe("vit_digits", {"data.augment": [{"kind": "dark", "by": 3}]})
  for plugins_given in ("", NAME):
    vit_jax.train(dataclasses.replace(config, plugins=plugins_given), tmp_path / "run")
  assert launched == [dataclasses.replace(config, plugins=NAME)] * 2
  text = json.dumps(to_dict(launched[0]))
  assert recorded.from_record(json.loads(text)) == launched[0]
  forget()
  with pytest.raises(ConfigError, match=f"{NAME}' is not imported; if you trust it, name it by"):
    recorded.from_record(json.loads(text))
  assert recorded.from_record(json.loads(text), "model").model == config.model


def test_a_module_that_waits_for_its_use_is_recorded_by_its_package(
  folder, tmp_path, monkeypatch, launched
):
  (folder / "waiting").mkdir()
  (folder / "waiting/__init__.py").write_text("")
  monkeypatch.setitem(sys.modules, "waiting", importlib.import_module("waiting"))
  monkeypatch.setattr(registry.SOURCES, "_lines", dict(registry.SOURCES._lines))
  registry.SOURCES["mine"] = "waiting.source:Mine"
  registry.SOURCES["own"] = "another_that_waits:Own"
  vit_jax.train(vit_jax.recipe("vit_digits"), tmp_path / "run")
  assert launched[0].plugins == "waiting"
  config = dataclasses.replace(launched[0], plugins=NAME)
  with pytest.raises(ConfigError, match=f"{NAME}' is not imported"):
    vit_jax.train(config, tmp_path / "run")
  assert NAME not in sys.modules


def test_only_a_lost_plugin_is_a_change():
  plugins.load(NAME)
  old, new = (to_dict(dataclasses.replace(parsed(), plugins=p)) for p in ("", NAME))
  assert recorded.changes(old, new) == recorded.changes(new, old) == []
  forget()
  assert recorded.changes(old, new) == []
  assert recorded.changes(new, old) == [f"config.plugins: '{NAME}' -> ''"]
  assert recorded.from_record(new) == dataclasses.replace(parsed(), plugins=NAME)
  new["data"]["train"]["source"] = "mine:x"
  with pytest.raises(ConfigError, match=f"{NAME}' is not imported"):
    recorded.from_record(new)


def test_tools_take_paths_on_a_storage_that_a_plugin_adds(folder, monkeypatch):
  line = "registry.STORAGES['kept'] = 'vit_jax.storage.local:LOCAL'"
  (folder / "plugin_of_a_storage.py").write_text(f"from vit_jax import registry\n{line}")
  monkeypatch.setattr(registry.STORAGES, "_lines", dict(registry.STORAGES._lines))
  flags = ToolFlags("predict")
  flags.add_source()
  given = flags.parse_args(["--source=kept://b/run", "--plugins=plugin_of_a_storage"])
  assert given.source == "kept://b/run"


def test_what_starts_runs_imports_them_too(tmp_path, capfd):
  for index in range(20):
    path = tmp_path / "images" / str(index % 2) / f"{index}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (16, 16), (9 * index,) * 3).save(path)
  recipe = tmp_path / "mine.py"
  recipe.write_text(RECIPE.replace("FOLDER", str(tmp_path / "images")))
  words = [f"--development={recipe}:part", f"--final={recipe}:all", "--learning-rates=0.1,0.2"]
  words += ["--config.data.augment=[{'kind':'dark'}]", f"--workdir={tmp_path / 's'}", "--commands"]
  sweep.main([*words, f"--plugins={NAME}"])
  commands = capfd.readouterr().out.splitlines()
  assert [f"--config.plugins={NAME}" in command for command in commands] == [True, True]
  with pytest.raises(SystemExit, match="2"):
    sweep.main([*words, "--config.plugins=no_such_module"])


def test_a_recipe_names_no_module(tmp_path, capsys):
  recipe = tmp_path / "mine.py"
  recipe.write_text(
    "from vit_jax.config import Config, to_config_dict\n"
    f"def get_config():\n  return to_config_dict(Config(plugins={NAME!r}))"
  )
  with pytest.raises(SystemExit, match="2"):
    command_line.parse(["main", f"--config={recipe}"])
  assert "only the command line can name modules" in capsys.readouterr().err
  assert NAME not in sys.modules
  assert "plugins" not in as_recipe(parsed(*WORDS), {}, "Made.")


TYPO = "from vit_jax import registry\nregistry.AUGMENTATIONS['dark'] = f'{__name__}:Stripes'"


@pytest.mark.parametrize(
  ("name", "text", "message"),
  [
    ("no_such_module", "", "no module no_such_module; install it"),
    ("a/b", "", "is no name of a module"),
    ("with_error", "1 / 0", "with_error cannot be imported: ZeroDivisionError"),
    ("lacking", "import no_such_library", "cannot be imported: No module named 'no_such_library'"),
    ("ending", "raise SystemExit(0)", "cannot be imported: SystemExit: 0"),
    ("with_typo", TYPO, "cannot be imported: AttributeError: .*'Stripes'"),
  ],
)
def test_a_module_that_cannot_be_imported_is_named(name, text, message, folder):
  if text:
    (folder / f"{name}.py").write_text(text)
  with pytest.raises(ConfigError, match=message):
    plugins.load(name)
