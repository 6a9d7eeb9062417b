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


AUTO_RECIPE = """
from vit_jax.config import Config, to_config_dict

def get_config():
  c = to_config_dict(Config())
  {}
  return c
"""


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


TWICE = {"steps": 1, "epochs": 2.0, "examples": 0}
# (a setting, a wrong value, what the message names)
WRONG = [
  ("batch_sise", 3, "config.batch_sise is not a setting", "nearest: config.batch_size"),
  ("learning_rate", 3, "config.learning_rate is", "nearest: config.schedule.learning_rate, "),
  ("model.seed", 3, "config.model.seed is not a setting", "nearest: config.seed"),
  ("model.zzz", 3, "config.model.zzz is not a setting", "nearest: config.model.activation, "),
  ("evaluate", {"x": {"sauce": ""}}, "evaluate.x.sauce is not", ": config.evaluate.x.source"),
  ("model.dropout", 1.0, "config.model.dropout=1.0 is too large", "most is 0.99"),
  ("model.dropout", float("nan"), "config.model.dropout=nan", "not a finite number"),
  ("schedule.learning_rate", float("inf"), "learning_rate=inf", "not a finite number"),
  ("model.remat", "dot", "config.model.remat='dot' is not a choice", "nearest: dots"),
  ("loss.kind", "hinge", "config.loss.kind='hinge' is not a choice", "softmax"),
  ("model", 3, "config.model=3 is one value", "settings"),
  ("evaluate", 3, "config.evaluate=3 is one value", "groups of settings by name"),
  ("duration", TWICE, "config.duration is given twice", "'epochs': 2.0"),
  # What settings are called elsewhere.
  ("lr", 1, "lr is not a setting", "nearest: config.schedule.learning_rate"),
  ("optimizer.lr", 1, "lr is not a setting", "nearest: config.schedule.learning_rate"),
  ("epochs", 1, "epochs is not a setting", "nearest: config.duration.epochs"),
  ("num-epochs", 1, "num-epochs is not a setting", "nearest: config.duration.epochs"),
  ("wd", 1, "wd is not a setting", "nearest: config.optimizer.weight_decay"),
  ("bs", 1, "bs is not a setting", "nearest: config.batch_size"),
  ("model.warmup_steps", 1, "is not a setting", "nearest: config.schedule.warmup"),
  ("img_size", 1, "img_size is not a setting", "nearest: config.data.image_size"),
  ("pretrained", 1, "pretrained is not a setting", "nearest: config.init_from"),
]
# (a setting, a value of a wrong type, what the message says); the first five have a rule.
WRONG_TYPES = [
  ("batch_size", "8", "is str; it must be int."),
  ("batch_size", 5.5, "is float; it must be int."),
  ("batch_size", None, "is NoneType; it must be int."),
  ("data.flip", 1, "is int; it must be bool."),
  ("data.crop_area", 0.5, "is float; it must be tuple."),
  ("batch_size", True, "is bool; it must be int."),
  ("seed", "auto", "is str; it must be int."),
  ("model.scan", 1, "is int; it must be bool."),
  ("schedule.warmup.steps", "five", "is str; it must be int."),
  ("schedule.warmup", 5, "is one value; it must be a group of settings."),
]


@pytest.mark.parametrize(("key", "value", "named", "advice"), WRONG)
def test_wrong_values_are_named(key, value, named, advice):
  with pytest.raises(c.ConfigError) as refused:
    c.from_dict(edited(key, value))
  assert named in str(refused.value)
  assert advice in str(refused.value)


@pytest.mark.parametrize(("key", "value", "said"), WRONG_TYPES)
def test_wrong_types_are_named(tmp_path, key, value, said):
  """In a dictionary, and by a recipe, which may put anything in the place of AUTO."""
  path = tmp_path / "mine.py"
  path.write_text(AUTO_RECIPE.format(f"c.{key} = {value!r}"))
  for read in (lambda: c.from_dict(edited(key, value)), lambda: load(str(path))):
    with pytest.raises(c.ConfigError) as refused:
      read()
    assert str(refused.value) == f"config.{key}={value!r} {said}"


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

  @given(st.floats(1e-6, 1e3), st.integers(1, 10_000), st.integers(1, 10**7))
  def test_what_is_given_never_becomes_never(self, epochs, batch_size, examples):
    steps = c.Duration(epochs=epochs).in_steps(batch_size=batch_size, epoch_examples=examples)
    assert steps >= 1
    assert abs(steps - epochs * examples / batch_size) <= 1


def test_a_missing_recipe_names_those_of_its_folder(monkeypatch, tmp_path):
  monkeypatch.chdir(tmp_path)
  missing = lambda path: suggestions.missing_recipe(path, tmp_path / "installed")
  assert missing("mine/rnu.py") == "There is no recipe mine/rnu.py."
  for name in ("mine/run.py", "configs/vit_digits.py"):
    (tmp_path / name).parent.mkdir()
    (tmp_path / name).touch()
  assert "nearest: mine/run.py" in missing("mine/rnu.py")
  assert "nearest: configs/vit_digits.py" in missing("vit_digits")


@pytest.mark.parametrize(
  ("line", "key", "value"),
  [
    ("c.batch_size = 5", "batch_size", 5),
    ("c.schedule.warmup.steps = 5", "schedule.warmup", c.Duration(steps=5)),
    ("c.schedule.warmup.steps = 0", "schedule.warmup", c.Duration()),
    ("c.duration.epochs = 2", "duration", c.Duration(epochs=2.0)),
    ("c.schedule.warmup = 'auto'", "schedule.warmup", LEFT_TO_RULE),
    ("c.schedule.warmup = {'steps': 5}", "schedule.warmup", c.Duration(steps=5)),
    ("c.schedule.learning_rate = 1", "schedule.learning_rate", 1.0),
    ("c.data.crop_area = (0.2, 1.0)", "data.crop_area", (0.2, 1.0)),
    ("c.data.flip = False", "data.flip", False),
    ("c.model.name = 'ViT-S/8'", "model.name", "ViT-S/8"),
  ],
)
def test_a_recipe_replaces_auto_by_what_it_likes(tmp_path, line, key, value):
  path = tmp_path / "mine.py"
  path.write_text(AUTO_RECIPE.format(line))
  found = value_of(load(str(path)), key)
  assert (found, type(found)) == (value, type(value))
  assert load(str(path)) == with_value(c.Config(), key, value)  # all else is as it was


def test_the_settings_of_a_kind_have_its_name_and_no_other():
  with pytest.raises(TypeError, match="kind"):
    Adam(kind="sgd")
