"""What follows from a setting follows where the command line replaces that setting."""

import dataclasses
import functools
import graphlib
import re
import types

import jax
import pytest

from tests import resolved
from vit_jax import models, recipes, registry
from vit_jax.config import AUTO, ConfigError, Duration, Model, Size, recipe_file
from vit_jax.config.as_recipe import as_recipe
from vit_jax.config.fields import FACTS, Labels, Rule, is_auto
from vit_jax.config.model import ARCHITECTURE
from vit_jax.config.resolve import (
  ASKED,
  asked_of,
  check_rules,
  left,
  resolve,
  rules_of,
  value_of,
)
from vit_jax.config.run import Config
from vit_jax.evaluation.classification import Classification
from vit_jax.evaluation.few_shot import FewShot
from vit_jax.evaluation.nearest_neighbours import Nearest
from vit_jax.training import facts
from vit_jax.weights.card import Card

RULES = rules_of(Config())
CROPPED = Card(
  image_size=384, resize=438, squeeze=True, resampling="pillow_bicubic", position_resizing="bicubic"
)
OTHER = Card(image_size=256, resampling="torchvision_bicubic")
# Weights by their name: how images are prepared for them, and what their model is.
WEIGHTS = {
  "w.npz": (CROPPED, models.expanded(Model("ViT-B/16", registers=4, qk_norm=True, pool="gap"))),
  "v.npz": (OTHER, models.expanded(Model("ViT-S/32", layer_scale=True, activation="gelu"))),
}
KNOWN = dict(images=5000, side=64, labels=Labels("abc"), devices=8, parts=(2, ""))
KNOWN |= dict(device=jax.devices("cpu")[0], attention="cudnn", class_shares=[0.5, 0.25, 0.25])
GPU = types.SimpleNamespace(platform="gpu")
BASES = (
  "train.py:digits",
  "train.py:digits,ViT-S/8",
  "finetune.py:w.npz,digits",
  "finetune.py:ViT-B/16,pets",
  "hyperrule.py:R50x1,cifar10",
  "vtab.py:ViT-B/16,svhn",
  "vit_b16_jft.py",
  "masked_vit_b16_i1k.py",
  "deit3.py:B",
  "evaluate.py:imagenet",
  "evaluate.py:few_shot,R50x1",
)


@functools.cache
def asked(recipe, *words):
  return recipes.resolve(f"configs/{recipe}", [f"--config.{word}" for word in words])


def known(**changes):
  """All facts, by their names; `changes` are values of some of them."""
  of_weights = lambda i: lambda config: WEIGHTS[config.init_from][i] if config.init_from else None
  given = {key: lambda _, x=x: x for key, x in (KNOWN | changes).items()}
  return facts.of_start() | {"card": of_weights(0), "architecture": of_weights(1)} | given


@functools.cache
def decided(recipe, key=None):
  """The settings with all that follows, where another value of a setting is asked for."""
  return resolve(asked(recipe, *(word_of(recipe, key) if key else ())), known())


def found(recipe, *words, **changes):
  """The settings with all that follows; without their origins."""
  return dataclasses.replace(
    resolve(asked(recipe, *words), known(**changes)), origins=(), derived=()
  )


@pytest.mark.parametrize(
  ("recipe", "words", "other"),
  [
    ("train.py:digits", ("model.name=ViT-S/8",), "train.py:digits,ViT-S/8"),
    (
      "train.py:digits",
      ("model.name=vit_small_patch16_224",),
      "train.py:digits,vit_small_patch16_224",
    ),
    ("finetune.py:ViT-B/16,imagenet", ("model.name=ViT-H/14",), "finetune.py:ViT-H/14,imagenet"),
    ("finetune.py:ViT-B/16,pets", ("model.name=ViT-H/14",), "finetune.py:ViT-H/14,pets"),
    ("vtab.py:ViT-B/16,pets", ("model.name=ViT-H/14",), "vtab.py:ViT-H/14,pets"),
    ("finetune.py:w.npz,digits", ("init_from=v.npz",), "finetune.py:v.npz,digits"),
  ],
)
def test_a_replaced_setting_gives_the_recipe_that_had_it_from_the_start(recipe, words, other):
  ours, theirs = asked(recipe, *words), asked(other)
  assert dataclasses.replace(ours, origins=(), derived=()) == dataclasses.replace(
    theirs, origins=(), derived=()
  )
  assert found(recipe, *words) == found(other)


SHAPE = dict(family="vit", depth=2, width=96, mlp_dim=128, heads=2, axial="false", pool="map")
# For each setting that rules read, another value.
REPLACED = {
  "init_from": "init_from=v.npz",
  "new_head": "new_head=true",
  "duration": "duration.epochs=3",
  "batch_size": "batch_size=48",
  "model.name": "model.name=ViT-S/32",
  "model.compute_dtype": "model.compute_dtype=bfloat16",
  **{f"model.{key}": f"model.{key}={value}" for key, value in SHAPE.items()},
  "model.patch": "model.patch=4",
  "model.stem_width": "model.stem_width=32",
  "model.stages": "model.stages=(1,1)",
  "mesh.fsdp": "mesh.fsdp=2",
  "mesh.model": "mesh.model=2",
  "optimizer.is_averaged": "optimizer.kind=sgd",
  "optimizer.rate_for_weights": "optimizer.kind=schedule_free",
  "optimizer.rated_as_adam": "optimizer.kind=lamb",
  "data.image_size": "data.image_size=96",
  "data.crop_area": "data.crop_area=(0.3,1)",
  "data.train_resize": "data.train_resize=400",
  "data.train_pad": "data.train_pad=4",
  "data.evaluate_resize": "data.evaluate_resize=400",
  "verify_every": "verify_every=100",
  "optimizer.kind": "optimizer.kind=lion",
  "model.num_classes": "model.num_classes=7",
  "model.remat": "model.remat=dots",
  "model.attention": "model.attention=xla",
  "model.pool_heads": "model.pool_heads=4",
  "model.window": "model.window=2",
  "model.differential": "model.differential=true",
  "lora": "lora.rank=2",
  "objective.position_resizing": "objective.kind=dino",
}
HYBRID = "model.name=R50x1+ViT-B/16"
# Settings that only some models have, and what gives such a model.
NEEDED = {
  "model.stem_width": HYBRID,
  "model.stages": HYBRID,
  "model.pool_heads": "model.pool=map",
  "model.window": "model.pool=gap",
  "model.differential": "model.attention=xla",
  # What there is no learning rate for.
  **dict.fromkeys(("init_from", "optimizer.kind"), "schedule.learning_rate=0.02"),
  **dict.fromkeys(
    ("optimizer.is_averaged", "optimizer.rate_for_weights", "optimizer.rated_as_adam"),
    "schedule.learning_rate=0.02",
  ),
}


def word_of(recipe, key):
  return (REPLACED[key], NEEDED[key]) if key in NEEDED else (REPLACED[key],)


def test_every_setting_that_a_rule_reads_is_replaced():
  sets = {"all": Classification(), "few": FewShot(), "near": Nearest()}
  rules = rules_of(Config(evaluate=sets)).values()
  read = {name.removeprefix(ASKED) for rule in rules for name in rule.reads}
  assert {name for name in read if not name.startswith("facts.")} == {*REPLACED}
  of_rules = {*known()} - {"start"}  # which the launch asks for
  assert {name.removeprefix("facts.") for name in read - {*REPLACED}} == {*FACTS} == of_rules


def by_rule(rule, ours, config, facts):
  """What the rule of a setting gives, of the settings `ours` that are asked for."""

  def read(name):
    kind, _, rest = name.partition(".")
    if kind == "facts":
      return lambda: facts[rest](config)
    return value_of(ours, rest) if f"{kind}." == ASKED else value_of(config, name)

  return rule.derive(*map(read, rule.reads))[0]


@pytest.mark.parametrize("recipe", BASES)
@pytest.mark.parametrize("key", [None, *REPLACED])
def test_each_setting_is_what_its_rule_gives_or_as_it_was_asked_for(recipe, key):
  ours = asked(recipe, *(word_of(recipe, key) if key else ()))
  config, facts = decided(recipe, key), known()
  assert not left(config)
  rules = rules_of(ours)
  for key, rule in rules.items():
    given = value_of(ours, key)
    expected = by_rule(rule, ours, config, facts) if is_auto(given) else given
    assert value_of(config, key) == expected, key
  for field in dataclasses.fields(Config):  # and nothing else is touched
    if field.name not in ("origins", "derived", *(key.partition(".")[0] for key in rules)):
      assert getattr(config, field.name) == getattr(ours, field.name)


def same_as_begun(name, ours, config, begun):
  """Whether what a rule reads is as it was: a setting, also one that is asked for; or any fact."""
  kind, _, rest = name.partition(".")
  if kind == "facts":
    return True
  if f"{kind}." != ASKED:
    return value_of(config, name) == value_of(begun, name)
  was_given = rest not in begun.derived
  given = value_of(ours, rest)
  return is_auto(given) or (was_given and given == value_of(begun, rest))


@pytest.mark.parametrize("recipe", BASES)
@pytest.mark.parametrize("key", [None, *REPLACED])
def test_a_run_that_goes_on_keeps_what_is_decided_by_what_is_as_it_was(recipe, key):
  begun = decided(recipe)
  ours = asked(recipe, *(word_of(recipe, key) if key else ()))
  facts = known(images=10**6, side=500, devices=2, parts=(1, ""), device=GPU)
  config = resolve(ours, facts, begun)
  for name, rule in rules_of(ours).items():
    as_begun = all(same_as_begun(other, ours, config, begun) for other in rule.reads)
    if not is_auto(value_of(ours, name)):
      expected = value_of(ours, name)
    elif rule.stays == "always" or (rule.stays == "while" and as_begun):
      expected = value_of(begun, name)
    else:
      expected = by_rule(rule, ours, config, facts)
    assert value_of(config, name) == expected, name


@pytest.mark.parametrize("recipe", BASES)
def test_settings_that_are_resolved_stay_as_they_are(recipe):
  early = {key: known()[key] for key in facts.of_start()}
  for so_far in (early, known()):
    config = resolve(asked(recipe), so_far)
    assert resolve(config, so_far) == config
  final = resolve(asked(recipe), known())
  others = known(images=10**7, side=300, labels=Labels("ab", True), devices=2, parts=(4, ""))
  assert resolve(final, others) == final


MANY = Labels("abcd", multi_label=True)
SCRATCH, WITH_CARD = "train.py:digits", "finetune.py:w.npz,digits"
STRAIGHT = dict(card=Card(image_size=384))  # images are resized straight to the square
HUNDRED = "duration.steps=100"
FOR_DIGITS = f"""
batch_size=64 duration.epochs=120 log_every.steps=50 evaluate_every.epochs=12
checkpoint.every.epochs=12 schedule.warmup.epochs=6 schedule.learning_rate=3e-3
optimizer.ema={round(1 - 1 / (120 * 5000 / 64 / 50), 6)} loss.kind=softmax
model.name=ViT-Ti/8 model.depth=4 model.num_classes=3 model.compute_dtype=float32
model.attention=cudnn data.image_size=64 data.crop_area=(0.5,1.0) data.train_resize_ratio=0.0
data.flip=false data.evaluate_resize=0 data.evaluate_squeeze=false data.resampling=pillow_bilinear
position_resizing=bilinear_aligned mesh.data=8 accumulation=2
"""
FOR_FINE_TUNING = """
batch_size=512 duration.steps=500 log_every.steps=5 evaluate_every.steps=50
checkpoint.every.steps=50 schedule.warmup.steps=100 schedule.learning_rate=0.01
optimizer.ema=0.0 model.name=ViT-B/16 data.image_size=384 data.crop_area=(0.5,1.0)
data.train_resize_ratio=0.0 data.flip=true data.evaluate_resize=438 data.evaluate_squeeze=true
data.resampling=pillow_bicubic position_resizing=bicubic
"""
FOR_MANY = """
batch_size=256 duration.epochs=60 schedule.learning_rate=1e-3 data.crop_area=(0.3,1.0)
model.depth=12
"""
FOR_4000 = """
schedule.warmup.steps=200 evaluate_every.steps=400 checkpoint.every.steps=400 log_every.steps=40
optimizer.ema=0.9875
"""
FOR_6 = """
schedule.warmup.steps=1 evaluate_every.steps=1 checkpoint.every.steps=1 log_every.steps=1
optimizer.ema=0.0
"""
FOR_STRAIGHT = f"""
data.crop_area=(0.05,1.0) data.train_resize_ratio={448 / 384} data.evaluate_resize=0
data.evaluate_squeeze=false
"""
FOR_100 = "schedule.warmup.steps=20 evaluate_every.steps=10 log_every.steps=1"
WEIGHTS_OF_CLASSES = f"({2 / 3},{4 / 3},{4 / 3})"
# (recipe, settings that are replaced, facts that are otherwise, what follows)
FOLLOWS = [
  (SCRATCH, "", {}, FOR_DIGITS),
  (SCRATCH, "", dict(images=200_000), FOR_MANY),
  (SCRATCH, "", dict(images=100), "batch_size=16 model.positions=sincos2d"),
  (SCRATCH, "", dict(side=300), "model.name=ViT-Ti/16 data.image_size=224 data.flip=true"),
  (SCRATCH, "", dict(images=30, side=28), "model.name=ViT-Ti/4 data.image_size=28 batch_size=4"),
  (SCRATCH, "", dict(side=65), "model.name=ViT-Ti/8 data.image_size=64"),
  (SCRATCH, "", dict(images=400_000), "batch_size=256"),
  (SCRATCH, "", dict(images=2_000_000, side=230), "model.name=ViT-S/16 batch_size=1024"),
  (SCRATCH, "", dict(labels=MANY), "loss.kind=sigmoid model.num_classes=4"),
  (SCRATCH, "", dict(device=GPU), "model.compute_dtype=bfloat16"),
  (SCRATCH, "mesh.fsdp=2", dict(devices=6), "mesh.data=3"),
  (SCRATCH, "", dict(parts=(3, "")), "accumulation=3"),
  (SCRATCH, "duration.steps=4000", {}, FOR_4000),
  (SCRATCH, "duration.steps=6", {}, FOR_6),
  (SCRATCH, "batch_size=1200", {}, "optimizer.ema=0.98 log_every.steps=5"),
  (SCRATCH, "optimizer.kind=sgd schedule.learning_rate=1", {}, "optimizer.ema=0.0"),
  (SCRATCH, "optimizer.kind=muon", {}, "schedule.learning_rate=3e-3"),
  (SCRATCH, "objective.class_weights=auto", {}, f"objective.class_weights={WEIGHTS_OF_CLASSES}"),
  (SCRATCH, "model.name=ViT-S/20", {}, "model.depth=12 data.image_size=60"),
  (SCRATCH, "model.patch=9", {}, "model.depth=4 data.image_size=63"),
  (SCRATCH, "data.image_size=128", {}, "model.name=ViT-Ti/16 model.patch=16"),
  (SCRATCH, "data.image_size=518", {}, "model.name=ViT-Ti/14 model.patch=14"),
  (SCRATCH, "data.image_size=84x126", {}, "model.name=ViT-Ti/7"),
  (SCRATCH, "data.image_size=127", {}, "model.name=ViT-Ti/16"),  # refused later: a prime
  (WITH_CARD, "", {}, FOR_FINE_TUNING),
  (WITH_CARD, "", dict(images=10**6), "duration.steps=20000 schedule.warmup.steps=500"),
  (WITH_CARD, "duration.epochs=2", dict(images=51_200), "schedule.warmup.steps=40"),
  (WITH_CARD, "data.image_size=192", {}, "data.evaluate_resize=219"),
  (WITH_CARD, "data.evaluate_resize=0", {}, "data.evaluate_squeeze=false"),
  (WITH_CARD, "", STRAIGHT, FOR_STRAIGHT),
  (WITH_CARD, "data.crop_area=(0.3,1)", STRAIGHT, "data.train_resize_ratio=0.0"),
  (WITH_CARD, "data.train_resize=400", STRAIGHT, "data.train_resize_ratio=0.0"),
  (WITH_CARD, "data.train_pad=4", STRAIGHT, "data.train_resize_ratio=0.0"),
  (WITH_CARD, "", dict(card=Card(image_size=0)), "data.image_size=224"),
  (WITH_CARD, "model.name=ViT-S/20", {}, "model.depth=12 data.image_size=384"),
  (WITH_CARD, HUNDRED, {}, FOR_100),
  ("finetune.py:ViT-B/16,cifar10", HUNDRED, {}, FOR_100),
  ("hyperrule.py:R50x1,cifar10", HUNDRED, {}, FOR_100),
  ("hyperrule.py:R50x1,9,small", "new_head=false", {}, "schedule.warmup.steps=25"),
  ("vtab.py:ViT-B/16,pets", HUNDRED, {}, "schedule.warmup.steps=20 checkpoint.every.steps=20"),
  # What recipes take from tables of their own.
  ("resnet_sgd.py:R50x1,jft", "batch_size=256", {}, "schedule.learning_rate=0.03"),
  ("mae_finetune.py:B", "batch_size=512", {}, "schedule.learning_rate=1e-3"),
  ("deit3.py:B", "data.image_size=96", {}, "data.evaluate_resize=96"),
  ("augreg.py", "data.image_size=112", {}, "data.evaluate_resize=128"),
  ("hyperrule.py:R50x1,cifar10", "data.image_size=64", {}, "data.train_resize=80"),
]


def keys_of(given):
  """The settings that are given; a length by its name without the unit."""
  names = (word.partition("=")[0] for word in given.split())
  return [re.sub(r"\.(steps|epochs)$", "", name) for name in names]


@pytest.mark.parametrize(("recipe", "words", "changes", "expected"), FOLLOWS)
def test_what_is_derived_follows(recipe, words, changes, expected):
  """As if the command line gave it, with the other settings that it gives."""
  config, given = found(recipe, *words.split(), **changes), asked(recipe, *expected.split())
  for key in keys_of(expected):
    assert value_of(config, key) == value_of(given, key), key


@pytest.mark.parametrize("kind", registry.OPTIMIZERS)
@pytest.mark.parametrize("recipe", [SCRATCH, WITH_CARD])
def test_an_optimizer_without_a_learning_rate_for_the_start_is_named(recipe, kind):
  """No kind gets the rate of another: SGD's is a hundred times Adam's."""
  words = recipe, f"optimizer.kind={kind}"
  if kind in {SCRATCH: ("adam", "muon"), WITH_CARD: ("sgd",)}[recipe]:
    assert found(*words).schedule.learning_rate == (3e-3 if recipe == SCRATCH else 0.01)
    return
  with pytest.raises(ConfigError, match=f"learning_rate has no default .* with .*'{kind}'; give"):
    found(*words)
  assert found(*words, "schedule.learning_rate=0.25").schedule.learning_rate == 0.25


def test_every_rule_is_above():
  assert {key for *_, expected in FOLLOWS for key in keys_of(expected)} >= {
    key for key in RULES if key.removeprefix("model.") not in ARCHITECTURE
  }


@pytest.mark.parametrize("weights", WEIGHTS)
def test_the_model_is_that_of_the_weights_whichever_they_are(weights):
  config = found(WITH_CARD, f"init_from={weights}")
  _, model = WEIGHTS[weights]
  for key in ("name", *ARCHITECTURE):
    assert getattr(config.model, key) == getattr(model, key)


@pytest.mark.parametrize("name", ["ViT-B/32", "R50x1+ViT-B/16", "R50x1", "Axial-ViT-B/16"])
@pytest.mark.parametrize("recipe", [SCRATCH, WITH_CARD, "vit_b16_jft.py"])
def test_the_architecture_is_that_of_a_name_that_is_given(recipe, name):
  config = found(recipe, f"model.name={name}", side=224)
  assert config.model == dataclasses.replace(config.model, **vars_of(models.expanded(Model(name))))


def vars_of(model):
  return {key: getattr(model, key) for key in ("name", *ARCHITECTURE)}


def values_of(field):
  """Values of a setting as a command line gives them, the smallest and the largest among them."""
  check = field.metadata
  if check.get("choices"):
    return check["choices"]
  if field.type is bool:
    return "false", "true"
  if field.type in (int, Size):
    return check["low"] + 1, check["high"]
  return (check["low"], check["high"]) if field.type is float else ()


# Of settings whose type does not tell values that suit.
GIVEN = {
  "model.name": ("ViT-S/8", "R50x1"),
  "model.stem_width": (32, 4096),
  "model.stages": ("(1,)", "(3,4,6,3)"),
  "data.crop_area": ("(0.2,0.9)", "(1.0,1.0)"),
  "batch_size": (1, 2**20),
}


@pytest.mark.parametrize("recipe", [SCRATCH, WITH_CARD, "finetune.py:ViT-B/16,pets"])
@pytest.mark.parametrize("key", RULES)
def test_what_the_command_line_gives_is_never_changed(recipe, key):
  ours, (*groups, name) = asked(recipe), key.split(".")
  group = value_of(ours, ".".join(groups)) if groups else ours
  if isinstance(getattr(group, name), Duration):
    words = [f"{key}.steps=7", f"{key}.epochs=0.5", f"{key}.examples=9", f"{key}.steps=0"]
  else:
    (field,) = (field for field in dataclasses.fields(group) if field.name == name)
    words = [f"{key}={value}" for value in GIVEN.get(key) or values_of(field)]
  beside = ["data.image_size=224", *([NEEDED[key]] if key in NEEDED else [])]
  for word in words:
    asks = asked(recipe, *(other for other in beside if not other.startswith(key)), word)
    given = value_of(asks, key)
    assert not is_auto(given)
    config = resolve(asks, known())
    assert value_of(config, key) == given
    assert dict(config.origins).get(key, "") in ("", recipe_file.GIVEN)


def test_auto_leaves_a_setting_of_a_recipe_to_its_rule():
  words = "schedule.warmup=auto", "evaluate_every=auto", "schedule.learning_rate=auto"
  config = found("vit_b16_jft.py", "duration.steps=2000", *words)
  assert config.schedule.warmup == Duration(steps=100)
  assert config.evaluate_every == Duration(steps=200)
  assert config.schedule.learning_rate == 3e-3


@pytest.mark.parametrize(
  ("recipe", "key"),
  [
    *((recipe, "batch_size") for recipe in ("mae.py:B", "mae_finetune.py:B", "dino.py:S")),
    ("resnet_sgd.py:R50x1,jft", "batch_size"),
    ("dino.py:S", "duration"),
  ],
)
def test_a_recipe_that_needs_a_value_refuses_to_leave_it_to_its_rule(recipe, key):
  with pytest.raises(ConfigError, match=f"^config.{key}=auto does not suit this recipe, which"):
    asked(recipe, f"{key}=auto")


def test_a_part_of_a_run_whose_length_is_left_to_its_rule_is_left_too():
  words = "duration=auto", "init_from=w.npz"
  config = found("vtab.py:ViT-B/16,pets", *words, images=1000)
  assert config.duration == Duration(steps=500)
  assert config.checkpoint.every == Duration(steps=50)


def test_other_data_is_followed_by_all_that_it_decides():
  config = resolved.with_data(asked(SCRATCH, "data.train.subset=100"))
  assert (config.batch_size, config.model.positions) == (16, "sincos2d")
  config = resolved.with_data(asked(SCRATCH, "data.train.source=synthetic:8", "data.train.split="))
  assert config.model.num_classes == 8


def test_rules_that_read_one_another_in_a_circle_are_refused():
  rule = lambda *reads: Rule(reads, "the other", lambda *values: (1, ""))
  check_rules({"a": rule("b"), "b": rule("c", "facts.images"), "c": rule("d")})
  with pytest.raises(graphlib.CycleError):
    check_rules({"a": rule("b"), "b": rule("c"), "c": rule("a")})
  check_rules({"a": rule("b"), "b": rule("asked.a")})  # what was asked for is known
  with pytest.raises(ValueError, match=r"the rule of a reads facts\.weather, which is no fact"):
    check_rules({"a": rule("facts.weather")})


def test_a_run_that_goes_on_keeps_what_is_decided_as_it_was():
  begun = resolve(asked(SCRATCH), known())
  again = resolve(asked(SCRATCH), known(images=10**6, side=500, devices=2, parts=(1, "")), begun)
  kept = ("batch_size", "accumulation", "duration", "data.flip", "data.image_size", "model.name")
  for key in kept:
    assert value_of(again, key) == value_of(begun, key), key
  assert (begun.mesh.data, again.mesh.data) == (8, 2)


@pytest.mark.parametrize("recipe", BASES)
def test_what_was_given_once_is_never_taken_for_derived(recipe):
  """Nor what was derived for given, by a run that goes on and by what its settings tell."""
  begun = resolve(asked(recipe), known())
  assert asked_of(begun) == dataclasses.replace(asked(recipe), origins=begun.origins)
  given = {key: 1.5 for key in rules_of(begun) if key.endswith(".resize")}
  given |= {"position_resizing": "bicubic"}
  begun = resolve(asked(recipe, *(f"{key}={value}" for key, value in given.items())), known())
  for _ in range(2):
    begun = resolve(asked(recipe), known(), begun)
    assert {key: value_of(begun, key) for key in given} == given
    assert not given.keys() & begun.derived
    assert {key: value_of(asked_of(begun), key) for key in given} == given


@pytest.mark.parametrize(
  ("recipe", "key"),
  [
    *((recipe, None) for recipe in BASES),
    *((BASES[(i + j) % len(BASES)], key) for i, key in enumerate(REPLACED) for j in (0, 5)),
  ],
)
def test_a_recipe_that_is_written_resolves_to_the_same(recipe, key, tmp_path):
  """Settings are written one by one, so that two recipes are enough for each."""
  config = decided(recipe, key)
  path, text = tmp_path / "mine.py", as_recipe(config, known(), "Mine.")
  assert "# From: \n" not in text
  path.write_text(text)
  again = resolve(recipes.load(str(path)), known())
  same = lambda config: dataclasses.replace(config, origins=(), derived=())
  assert same(again) == same(config)


@pytest.mark.parametrize("recipe", BASES)
def test_a_recipe_that_is_written_leaves_to_rules_what_was_left_to_them(recipe, tmp_path):
  path = tmp_path / "mine.py"
  path.write_text(as_recipe(asked(recipe), {}, "Mine."))
  assert recipes.load(str(path)) == dataclasses.replace(asked(recipe), origins=())


def test_a_recipe_that_is_written_leaves_to_other_devices_what_follows_from_them(tmp_path):
  config = resolve(asked(SCRATCH), known())
  path = tmp_path / "mine.py"
  path.write_text(as_recipe(config, {}, "Mine."))
  again = recipes.load(str(path))
  for key in ("mesh.data", "accumulation", "model.compute_dtype", "model.attention"):
    assert value_of(again, key) == AUTO
  assert (again.batch_size, again.data.image_size) == (64, 64)


@pytest.mark.parametrize("text", ["\U0001f600", "a \"b\" 'c' \\", "é\n\x1b\x7f\u202e", "\udcff"])
def test_a_recipe_is_written_with_any_text(text, tmp_path):
  """Emoji, quotes, control characters, and bytes of a file's name that are no UTF-8."""
  evaluate = {text: Classification(split=text)}
  config = Config(init_from=text, evaluate=evaluate)
  path = tmp_path / "mine.py"
  path.write_text(as_recipe(config, {}, "Mine."), encoding="utf-8")
  assert recipes.load(str(path)) == config


def test_a_longer_run_has_a_longer_warm_up_but_the_average_that_it_began_with():
  begun = resolve(asked(SCRATCH), known())
  words = "duration.steps=4000"
  longer, new = (resolve(asked(SCRATCH, words), known(), before) for before in (begun, None))
  assert begun.schedule.warmup != longer.schedule.warmup == new.schedule.warmup
  assert begun.optimizer.ema == longer.optimizer.ema != new.optimizer.ema
