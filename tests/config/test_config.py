"""Settings: round trips, wrong values, durations."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vit_jax import config as c
from vit_jax.config import recipe_file, suggestions
from vit_jax.config.fields import LEFT_TO_RULE
from vit_jax.config.recipe_file import load
from vit_jax.config.resolve import value_of, with_value
from vit_jax.evaluation.classification import Classification
from vit_jax.evaluation.few_shot import FewShot
from vit_jax.evaluation.nearest_neighbours import Nearest
from vit_jax.learning.optimizers.adam import Adam


def edited(key, value):
  """The default settings with one dotted key replaced."""
  values = c.to_dict(c.Config())
  *path, last = key.split(".")
  node = values
  for part in path:
    node = node[part]
  node[last] = value
  return values


FULL = c.Config(
  duration=c.Duration(epochs=7),
  data=c.Data(),
  evaluate={
    "test": Classification(source="digits", split="test"),
    "few": FewShot(c.Dataset("digits"), shots=(1, 5)),
    "near": Nearest(test=c.Dataset("digits"), neighbours=3),
  },
)


def test_round_trips_through_dict_config_dict_and_json():
  assert c.from_dict(c.to_dict(FULL)) == FULL
  assert c.from_dict(c.to_config_dict(FULL).to_dict()) == FULL
  assert c.from_dict(json.loads(json.dumps(c.to_dict(FULL)))) == FULL


def test_a_whole_number_of_a_recipe_can_be_replaced_by_a_fraction():
  values = c.to_config_dict(c.Config(duration=c.Duration(epochs=7)))
  recipe = c.from_dict(values.to_dict())
  assert recipe_file.replaced(recipe, {"duration.epochs": "7.5"}).duration.epochs == 7.5


@pytest.mark.parametrize(
  ("key", "value", "message"),
  [
    ("batch_sise", 3, r"config\.batch_sise is not a setting; nearest: config\.batch_size"),
    (
      "learning_rate",
      3,
      r"config\.learning_rate is .*; nearest: config\.schedule\.learning_rate, ",
    ),
    ("model.seed", 3, r"config\.model\.seed is not a setting; nearest: config\.seed"),
    ("model.zzz", 3, r"config\.model\.zzz is not a setting; nearest: config\.model\.activation, "),
    ("batch_size", "8", r"config\.batch_size='8' is str; it must be int"),
    ("batch_size", True, r"config\.batch_size=True is bool; it must be int"),
    ("model.scan", 1, r"config\.model\.scan=1 is int; it must be bool"),
    ("model.dropout", 1.0, r"config\.model\.dropout=1\.0 is too large.*most is 0\.99"),
    ("model.dropout", float("nan"), r"config\.model\.dropout=nan is not a finite number"),
    ("schedule.learning_rate", float("inf"), "not a finite number"),
    ("model.remat", "dot", r"config\.model\.remat='dot' is not a choice.*nearest: dots"),
    ("loss.kind", "hinge", r"config\.loss\.kind='hinge' is not a choice.*softmax"),
    ("model", 3, r"config\.model=3 is one value"),
    ("evaluate", 3, r"config\.evaluate=3 is one value; it must be groups of settings by name"),
    (
      "evaluate",
      {"x": {"sauce": ""}},
      r"evaluate\.x\.sauce is not a setting; .*: config\.evaluate\.x\.source",
    ),
    ("duration", {"steps": 1, "epochs": 2.0, "examples": 0}, r"config\.duration is given twice"),
    ("data.crop_area", 0.5, r"config\.data\.crop_area=0\.5 is float; it must be tuple"),
  ],
)
def test_wrong_values_are_named(key, value, message):
  with pytest.raises(c.ConfigError, match=message):
    c.from_dict(edited(key, value))


@pytest.mark.parametrize(
  ("key", "setting"),
  [
    ("lr", "schedule.learning_rate"),
    ("optimizer.lr", "schedule.learning_rate"),
    ("epochs", "duration.epochs"),
    ("num-epochs", "duration.epochs"),
    ("wd", "optimizer.weight_decay"),
    ("bs", "batch_size"),
    ("model.warmup_steps", "schedule.warmup"),
    ("img_size", "data.image_size"),
    ("pretrained", "init_from"),
  ],
)
def test_what_settings_are_called_elsewhere(key, setting):
  message = rf"{key} is not a setting; nearest: config\.{setting}[,.]"
  with pytest.raises(c.ConfigError, match=message):
    c.from_dict(edited(key, 1))


def test_every_synonym_means_one_setting():
  def names(values, path="config"):
    for name, value in values.items():
      yield f"{path}.{name}"
      if isinstance(value, dict):
        yield from names(value, f"{path}.{name}")

  known = {*names(c.to_dict(c.Config()))}
  assert {*suggestions.SETTINGS} <= known
  words = [word for line in suggestions.SETTINGS.values() for word in line.split()]
  assert len(words) == len({*words})


class TestDuration:
  def test_units(self):
    convert = lambda **unit: c.Duration(**unit).in_steps(batch_size=100, epoch_examples=1050)
    assert convert(steps=7) == 7
    assert convert(epochs=2) == 21
    assert convert(epochs=0.5) == 5
    assert convert(examples=700) == 7
    assert convert() == 0

  def test_jft_recipe_has_the_steps_that_the_paper_implies(self):
    steps = c.Duration(epochs=7).in_steps(batch_size=4096, epoch_examples=303_000_000)
    assert steps == 517_822

  @given(st.floats(1e-6, 1e3), st.integers(1, 10_000), st.integers(1, 10**7))
  def test_what_is_given_never_becomes_never(self, epochs, batch_size, examples):
    steps = c.Duration(epochs=epochs).in_steps(batch_size=batch_size, epoch_examples=examples)
    assert steps >= 1
    assert abs(steps - epochs * examples / batch_size) <= 1


def test_a_missing_recipe_names_those_of_its_folder_and_of_the_projects(monkeypatch, tmp_path):
  monkeypatch.chdir(tmp_path)
  missing = lambda path: suggestions.missing_recipe(path, tmp_path / "installed")
  assert missing("mine/rnu.py") == "There is no recipe mine/rnu.py."
  for name in ("mine/run.py", "configs/vit_digits.py", "setup.py"):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
  assert "nearest: mine/run.py" in missing("mine/rnu.py")
  assert "nearest: configs/vit_digits.py" in missing("vit_digits")


AUTO_RECIPE = """
from vit_jax.config import Config, to_config_dict

def get_config():
  c = to_config_dict(Config())
  {}
  return c
"""


@pytest.mark.parametrize(
  ("line", "key", "value"),
  [
    ("c.batch_size = 5", "batch_size", 5),
    ("c.accumulation = 1", "accumulation", 1),
    ("c.schedule.warmup.steps = 5", "schedule.warmup", c.Duration(steps=5)),
    ("c.schedule.warmup.steps = 0", "schedule.warmup", c.Duration()),
    ("c.duration.epochs = 0.5", "duration", c.Duration(epochs=0.5)),
    ("c.duration.epochs = 2", "duration", c.Duration(epochs=2.0)),
    ("c.schedule.warmup = 'auto'", "schedule.warmup", LEFT_TO_RULE),
    ("c.schedule.warmup = {'steps': 5}", "schedule.warmup", c.Duration(steps=5)),
    ("c.schedule.learning_rate = 1", "schedule.learning_rate", 1.0),
    ("c.data.crop_area = (0.2, 1.0)", "data.crop_area", (0.2, 1.0)),
    ("c.data.flip = False", "data.flip", False),
    ("c.model.name = 'ViT-S/8'", "model.name", "ViT-S/8"),
    ("c.model.depth = 3", "model.depth", 3),
  ],
)
def test_a_recipe_replaces_auto_by_what_it_likes(tmp_path, line, key, value):
  path = tmp_path / "mine.py"
  path.write_text(AUTO_RECIPE.format(line))
  found = value_of(load(str(path)), key)
  assert (found, type(found)) == (value, type(value))
  assert load(str(path)) == with_value(c.Config(), key, value)  # all else is as it was


@pytest.mark.parametrize(
  ("line", "message"),
  [
    ("c.batch_size = '5'", "config.batch_size='5' is str; it must be int."),
    ("c.batch_size = 5.5", "config.batch_size=5.5 is float; it must be int."),
    ("c.batch_size = None", "config.batch_size=None is NoneType; it must be int."),
    ("c.batch_size = 'AUTO'", "config.batch_size='AUTO' is str; it must be int."),
    ("c.seed = 'auto'", "config.seed='auto' is str; it must be int."),
    (
      "c.schedule.warmup.steps = 'five'",
      "config.schedule.warmup.steps='five' is str; it must be int.",
    ),
    (
      "c.schedule.warmup = 5",
      "config.schedule.warmup=5 is one value; it must be a group of settings.",
    ),
    ("c.data.flip = 1", "config.data.flip=1 is int; it must be bool."),
    ("c.data.crop_area = 0.5", "config.data.crop_area=0.5 is float; it must be tuple."),
    (
      "c.duration.steps = c.duration.epochs = 5",
      "config.duration is given twice, as {'steps': 5, 'epochs': 5.0}; keep one and set the others "
      "to 0.",
    ),
  ],
)
def test_a_wrong_type_in_the_place_of_auto_is_named(tmp_path, line, message):
  path = tmp_path / "mine.py"
  path.write_text(AUTO_RECIPE.format(line))
  with pytest.raises(c.ConfigError) as refused:
    load(str(path))
  assert str(refused.value) == message


def test_the_settings_of_a_kind_have_its_name_and_no_other():
  with pytest.raises(TypeError, match="kind"):
    Adam(kind="sgd")
