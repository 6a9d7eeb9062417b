"""The command line: settings by key, wrong usage in one sentence, and the exit status of help."""

import dataclasses

import pytest
from absl import flags
from absl.testing import flagsaver

from vit_jax import config as c
from vit_jax import registry
from vit_jax.config import command_line, recipe_file
from vit_jax.evaluation.classification import Classification
from vit_jax.learning.optimizers.adam import Adam
from vit_jax.learning.optimizers.lamb import LAMB
from vit_jax.learning.optimizers.sgd import SGD
from vit_jax.process import console
from vit_jax.storage import workdir

RECIPE = c.Config(
  duration=c.Duration(epochs=7),
  optimizer=Adam(beta1=0.8, weight_decay=0.1),
  data=c.Data(),
  evaluate={"val": Classification("digits", "test")},
)

UNITS = "steps", "epochs", "examples"
NEW = "seeds=1", "train.source=digits", "kind=few_shot"


def replaced(*words):
  """The recipe's settings with those of a command line."""
  texts, others = recipe_file.split_settings(words)
  assert not others
  return recipe_file.replaced(RECIPE, texts)


@pytest.mark.parametrize(
  ("words", "key", "value"),
  [
    (["--config.seed=3"], "seed", 3),
    (["-config.seed", "3"], "seed", 3),
    (["--config.seed=3", "--config.seed=4"], "seed", 4),
    (["--config.data.flip=false"], "data.flip", False),
    (["--config.new_head"], "new_head", True),
    (["--config.schedule.learning_rate=1"], "schedule.learning_rate", 1.0),
    (["--config.model.stages=3,4,6"], "model.stages", (3, 4, 6)),
    (["--config.model.stages=(3,)"], "model.stages", (3,)),
    (["--config.schedule.drops=0.5"], "schedule.drops", (0.5,)),
    (["--config.init_from=a=b c"], "init_from", "a=b c"),
    (["--config.evaluate.val.split=x"], "evaluate", {"val": {"split": "x"}}),
    (["--config.duration.steps=5"], "duration", {"steps": 5, "epochs": 0.0}),
    (["--config.duration.steps=0"], "duration", {"steps": 0, "epochs": 0.0}),
    (["--config.duration.epochs=2"], "duration", {"steps": 0, "epochs": 2.0}),
    (["--config.duration=auto"], "duration", dict.fromkeys(UNITS, c.AUTO)),
    (["--config.schedule.warmup=auto"], "schedule.warmup", dict.fromkeys(UNITS, c.AUTO)),
    (["--config.schedule.warmup.steps=5"], "schedule.warmup", {"steps": 5, "epochs": 0.0}),
    (["--config.batch_size=auto"], "batch_size", c.AUTO),
    (["--config.optimizer.kind=sgd"], "optimizer", {"kind": "sgd", "momentum": 0.9}),
    (["--config.optimizer.momentum=0.5", "--config.optimizer.kind=sgd"], "optimizer.momentum", 0.5),
    (
      [f"--config.evaluate.new.{word}" for word in NEW],
      "evaluate",
      {"new": {"seeds": 1, "train": {"source": "digits", "image_key": "image"}}},
    ),
  ],
)
def test_what_the_command_line_replaces(words, key, value):
  def agrees(found, wanted):
    if isinstance(wanted, dict):
      return all(agrees(found[name], wanted[name]) for name in wanted)
    return type(found) is type(wanted) and found == wanted

  found = c.to_dict(replaced(*words))
  for part in key.split("."):
    found = found[part]
  assert agrees(found, value)


def test_another_kind_keeps_the_settings_that_both_kinds_have():
  assert replaced("--config.optimizer.kind=sgd").optimizer == SGD(weight_decay=0.1)
  assert replaced("--config.optimizer.kind=adam").optimizer == RECIPE.optimizer


@pytest.mark.parametrize(
  ("words", "rate"),
  [
    ("optimizer.kind=lion", c.AUTO),
    ("optimizer.kind=adam", 1e-3),
    ("optimizer.kind=muon", 1e-3),
    ("optimizer.beta1=0.5", 1e-3),
    ("optimizer.kind=lion schedule.learning_rate=1e-4", 1e-4),
  ],
)
def test_another_optimizer_does_not_get_the_learning_rate_of_the_recipe(words, rate):
  """Which may be a hundred times its own."""
  recipe = c.Config(schedule=c.Schedule(learning_rate=1e-3))
  texts = dict(word.split("=") for word in words.split())
  assert recipe_file.replaced(recipe, texts).schedule.learning_rate == rate


@pytest.mark.parametrize("kind", registry.OPTIMIZERS)
@pytest.mark.parametrize("before", registry.OPTIMIZERS)
def test_every_optimizer_may_take_the_place_of_every_other(kind, before):
  """What nobody gave has the defaults of the new kind, not of the old one."""
  first = recipe_file.replaced(c.Config(), {"optimizer.kind": before})
  found = recipe_file.replaced(first, {"optimizer.kind": kind}).optimizer
  assert found == registry.OPTIMIZERS[kind]()


def test_the_same_kind_keeps_a_value_of_the_recipe():
  recipe = c.Config(optimizer=LAMB(epsilon=1e-8))
  assert recipe_file.replaced(recipe, {"optimizer.kind": "lamb"}) == recipe


def test_a_setting_that_another_kind_does_not_have_has_no_origin():
  recipe = c.Config(origins=(("objective.cutmix", "9 images"), ("optimizer.ema", "9 images")))
  found = recipe_file.replaced(recipe, {"objective.kind": "masked_patches"})
  assert found.origins == (("optimizer.ema", "9 images"),)


def test_a_name_of_another_library_is_the_whole_architecture():
  """Nothing remains of the recipe's, and what the command line says itself counts more."""
  recipe = c.Config(model=c.Model("ViT-Ti/4", depth=4, pool="gap", dropout=0.1))
  told = [("model.depth", "9 images"), ("model.heads", "9 images"), ("batch_size", "9 images")]
  recipe = dataclasses.replace(recipe, origins=tuple(told))
  name = "timm/vit_small_patch14_dinov2.lvd142m"
  texts = {"model.name": name, "model.activation": "gelu_tanh", "model.heads": "3"}
  found = recipe_file.replaced(recipe, texts)
  scaled = dict(layer_scale=True, layer_scale_init=1e-5)
  given = dict(activation="gelu_tanh", heads=3)
  assert found.model == c.Model("ViT-S/14", **given, dropout=0.1, **scaled)
  assert dict(found.origins) == {
    "model.heads": "the command line",
    "model.activation": "the command line",
    "batch_size": "9 images",
    "model.name": f"the architecture of {name}, without its weights",
    **{f"model.{key}": name for key in scaled},
  }


@pytest.mark.parametrize(
  ("name", "side"),
  [
    ("vit_base_patch16_384.augreg_in21k_ft_in1k", 384),
    ("google/vit-base-patch32-384", 384),
    ("vit_so400m_patch14_siglip_384", 378),  # timm cuts off the last 6 pixels
    ("vit_base_patch14_dinov2", c.AUTO),
  ],
)
def test_the_size_of_images_comes_with_a_name_that_tells_it(name, side):
  assert recipe_file.replaced(c.Config(), {"model.name": name}).data.image_size == side
  given = {"model.name": name, "data.image_size": "112"}
  assert recipe_file.replaced(c.Config(), given).data.image_size == 112


@pytest.mark.parametrize("name", ["ViT-B/16", "vit_base_mci_224", "nothing", ""])
def test_other_names_are_left_to_the_checks_of_the_model(name):
  texts = {"model.name": name, "seed": "1"}
  assert recipe_file.in_our_names(texts) == texts


# (words of a command line, what the message names)
WRONG = [
  ("evaluate.vol.split=x", "evaluate.vol", "'val'"),
  ("evaluate.a.seed=1 evaluate.a.train.source=x evaluate.a.kind=few_shot", "seed", "nearest: con"),
  ("evaluate.val.seeds=1", "seeds", "--config.evaluate.val.kind=few_shot"),
  ("compute_dtype=float32", "compute_dtype is", "nearest: config.model.compute_d"),
  ("seed.x=1", "config.seed.x is", "nearest: config.seed."),
  ("seed=x", "config.seed='x'", "int; try 0."),
  ("seed=a\nb", "config.seed='a\\nb'", "int"),
  (f"seed={'9' * 5000}", "config.seed", "5,000 characters; the most is 4,096"),
  ("seed=auto", "config.seed='auto'", "int; try 0."),
  ("data.flip=maybe", "config.data.flip='maybe'", "bool; try True, or auto."),
  ("model.stages=(", "config.model.stages='('", "tuple; try (), or auto."),
  ("data.crop_area=half", "'half'", "tuple; try (0.05, 1.0), or auto."),
  ("batch_size=many", "config.batch_size='many'", "int; try 1, or auto."),
  ("batch_size=0", "batch_size=0 is too small", "least is 1, or auto."),
  (f"model.stages={'-' * 4000}1", "stages='-", "-... cannot be read as tuple"),
  ("model=3", "config.model is a group", "one of its settings"),
  ("evaluate=3", "config.evaluate is a group", "settings"),
  ("checkpoint.keep_every=auto", "config.checkpoint.keep_every is a group", "settings"),
  ("duration.steps=5 duration.epochs=3", "config.duration", "given twice"),
  ("schedule.warmup=5", "config.schedule.warmup='5'", ".steps, .epochs or .examples, or auto."),
  ("schedule.warmup.steps=auto", "one unit", "give config.schedule.warmup=auto"),
  ("optimizer.kind=sdg", "config.optimizer.kind='sdg'", "nearest: sgd."),
  ("optimizer.momentum=0.5", "momentum", "--config.optimizer.k"),
  ("optimizer.kind=sgd optimizer.beta1=0.5", "beta1", "kind=adam or --config.optimizer.kind=lamb"),
]


@pytest.mark.parametrize(("words", "named", "advice"), WRONG, ids=lambda text: text[:40])
def test_wrong_settings(words, named, advice):
  with pytest.raises(c.ConfigError) as refused:
    replaced(*(f"--config.{word}" for word in words.split(" ")))
  assert named in str(refused.value)
  assert advice in str(refused.value)


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    ([], "--config is missing; give a recipe"),
    (["--config", "configs/vtap.py"], "no recipe configs/vtap.py; nearest: configs/vtab.py"),
    (["--config=a\nb\x1b[2J.py"], r"There is no recipe a\nb\x1b[2J.py"),
    (["x"], "'x' is not a flag; settings are given as --config.a.b=value"),
    (["--nonsense"], "Unknown command line flag 'nonsense'"),
  ],
)
def test_wrong_command_lines(arguments, message, capsys):
  with flagsaver.flagsaver():
    flags.FLAGS.unparse_flags()
    flags.FLAGS["config"].unparse()
    with pytest.raises(SystemExit) as ended:
      command_line.parse(["main.py", *arguments])
  assert ended.value.code == console.WRONG_USAGE
  said = capsys.readouterr().err
  assert message in said
  assert said.count("\n") == 1


def test_an_evaluation_of_a_workdir_alone_has_its_settings(tmp_path):
  workdir.write_config(tmp_path, c.to_dict(RECIPE))
  assert command_line.recipe_of(["main", "--mode=evaluate", "--workdir", str(tmp_path)]) == RECIPE
  for argv in (["--mode=train", f"--workdir={tmp_path}"], ["--mode=evaluate"], []):
    with pytest.raises(c.ConfigError, match="--config is missing"):
      command_line.recipe_of(["main", *argv])
  with pytest.raises(c.ConfigError, match=r"the images too: vit-jax evaluate w\.npz DATA"):
    command_line.recipe_of(["main", "--mode=evaluate", "--workdir=w.npz"])


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
