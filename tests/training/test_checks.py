"""Settings that contradict one another are refused with key, value and the nearest valid choice."""

import dataclasses

import pytest

from tests import resolved
from vit_jax import config as c
from vit_jax.config import recipe_file
from vit_jax.evaluation import catalogue
from vit_jax.evaluation.classification import Classification
from vit_jax.evaluation.few_shot import FewShot
from vit_jax.evaluation.nearest_neighbours import Nearest
from vit_jax.training import checks

GOOD = resolved.config(
  duration=c.Duration(steps=10), batch_size=64, data=c.Data(train=c.Dataset(source="digits"))
)


def replaced(group, **changes):
  return dataclasses.replace(GOOD, **{group: dataclasses.replace(getattr(GOOD, group), **changes)})


def given(words):
  """The good settings with those of `words`; a model that they name brings its own sizes."""
  texts = dict(word.split("=", 1) for word in words.split())
  config = dataclasses.replace(GOOD, model=c.Model()) if "model.name" in texts else GOOD
  return recipe_file.replaced(config, texts)


def checked(config):
  """Checks settings in the order in which a run does."""
  checks.check_given(config)
  resolved.checked(config)


@pytest.mark.parametrize("words", ["", "data.evaluate_resize=224", "data.train_resize=224"])
def test_a_good_config_passes(words):
  resolved.checked(given(words))


SCORED = "evaluate.val.source=digits evaluate.val.split=test model.num_classes=10"


@pytest.mark.parametrize(
  ("words", "message"),
  [
    ("data.train.source=", r"data\.train\.source is empty.*folder:DIR.*num_classes"),
    ("data.train.source= duration.steps=0", r"config\.duration is 0.*alone; add --mode=evaluate"),
    ("duration.steps=0", r"config\.duration is 0"),
    ("data.image_size=225", r"image_size=225.*patches of ViT-B/16.*nearest: 224, 240"),
    ("data.image_size=9", r"image_size=9 .*nearest: 16\."),
    ("model.name=R+ViT-Ti/16 data.image_size=200", r"200 .*R\+ViT-Ti/16; nearest: 192, 221"),
    ("data.crop_area=(0.5,0.1)", r"crop_area=\(0\.5, 0\.1\)"),
    ("data.crop_area=(0.5,)", r"crop_area"),
    ("data.crop_area=(0.5,1.5)", r"crop_area.*<= 1"),
    ("data.crop_aspect=('a','b')", r"crop_aspect"),
    ("data.evaluate_resize=200", r"evaluate_resize=200 is smaller.*at least 224"),
    ("data.train_resize=200", r"train_resize=200 is smaller.*at least 224"),
    ("data.train_pad=224", r"train_pad=224 is not smaller .*the most is 223\."),
    ("data.repeats=3", r"=64 is not divisible by .*repeats=3; nearest: 63, 66"),
    ("accumulation=3", r"batch_size=64.*accumulation=3.*nearest: 63, 66"),
    ("data.cache=x data.cache_side=200", r"cache_side=200 is smaller.*at least 224, or"),
    ("data.cache=x data.train_resize=300", r"cache_side=256 .*train_resize=300.*least 300, or"),
    ("data.cache=x data.train_resize_ratio=1.5", r"256 .* 336 .*ratio=1\.5.*at least 336, or"),
    ("schedule.decay=steps", r"decay='steps' requires drops"),
    ("schedule.decay=steps schedule.drops=(0.5,0.4)", r"drops=\(0\.5, 0\.4\) must be asc"),
    ("schedule.decay=steps schedule.drops=(3000,)", r"drops=\(3000,\) must be ascending fr"),
    ("schedule.decay=steps schedule.drops=('a',)", r"drops=\('a',\) must be ascending fr"),
    ("early_stopping.metric=val/top2", r"metric='val/top2' .*none: no set of config\.evaluate has"),
    (
      f"early_stopping.metric=val/top2 {SCORED}",
      r"give val/loss, val/top1, val/top5, val/ece, ",
    ),
    ("model.name=ViT-BB/16", r"config\.model\.name='ViT-BB/16'.*nearest: ViT-B/16"),
    ("model.heads=7", r"model\.heads=7 does not divide the width 768 of ViT-B/16; nearest: (6|8)"),
    ("model.name=R50x1 model.stages=(3,'4')", r"model\.stages=\(3, '4'\) must hold numbers"),
    ("model.name=R50x1 model.depth=3", r"config\.model\.depth is no option of R50x1"),
    ("model.name=R50x1 model.width=40", r"config\.model\.width=40 .*multiple of 32"),
    ("model.name=Axial-ViT-B/16 model.pool=class_token", r"model\.pool='class_token'.*gap"),
    (
      "model.positions=none model.position_place=every_layer",
      r"model\.position_place='every_layer'.*positions='none'",
    ),
    ("model.positions=2d model.width=33 model.heads=3", r"model\.positions='2d'.*odd"),
    ("model.attention=cudnn", r"cudnn.*bfloat16"),
    ("objective.kind=masked_patches objective.rate=0", r"objective\.rate=0 of 196 patches"),
    ("optimizer.decay_rules=(('a','b'),)", r"decay_rules holds \('a', 'b'\)"),
    ("optimizer.decay_rules=(('(',1.0),)", r"decay_rules.*'\('.*regex"),
    ("optimizer.trainable=(", r"trainable='\(' is not a regex"),
    ("optimizer.trainable=hed/.*", r"'hed/\.\*' matches no .* of ViT-B/16; nearest: head/bias"),
    ("evaluate_step=3", r"evaluate_step=3 has no effect in training; add --mode=evaluate"),
    ("new_head=True", "new_head=True has no effect without"),
    *(
      (
        SCORED.replace(".val.", f".{name}."),
        rf"evaluate\.{name}: {name}/\.\.\. are metrics of train",
      )
      for name in catalogue.OF_TRAINING
    ),
  ],
)
def test_contradictions(words, message):
  config = given(words)
  with pytest.raises(c.ConfigError, match=message):
    checked(config)


@pytest.mark.parametrize("scan", [False, True])
@pytest.mark.parametrize("trainable", ["head/.*", "Transformer/.*", "Transformer/encoderblock.*"])
def test_parameters_that_can_be_trained_alone(trainable, scan):
  config = replaced("optimizer", trainable=trainable)
  resolved.checked(dataclasses.replace(config, model=c.Model(depth=2, scan=scan)))


BLOCKS_APART = [
  "head/.*|Transformer/encoderblock_1/.*",
  "(?!Transformer/encoderblock_[01]/).*",  # it matches the stacked array: nothing would be frozen
  "(?!Transformer/encoderblock_).*",
  r".*(?<!_0)/MlpBlock_3/.*|head/.*",
]


@pytest.mark.parametrize("pattern", BLOCKS_APART)
def test_stacked_blocks_cannot_be_told_apart(pattern):
  trainable = replaced("optimizer", trainable=pattern)
  rules = replaced("optimizer", weight_decay=0.1, decay_rules=((pattern, 0.5), *c.DECAY_RULES))
  for config, setting in ((trainable, "trainable"), (rules, "decay_rules")):
    resolved.checked(dataclasses.replace(config, model=c.Model(depth=3)))
    with pytest.raises(c.ConfigError, match=rf"optimizer\.{setting}=.* names single"):
      resolved.checked(dataclasses.replace(config, model=c.Model(depth=3, scan=True)))


def test_rules_for_all_blocks_may_be_stacked():
  for rule in ((".*encoderblock.*/kernel", 0.5), ("Transformer/encoderblock_1/.*/kernel", 1.0)):
    config = replaced("optimizer", weight_decay=0.1, decay_rules=(rule, *c.DECAY_RULES))
    resolved.checked(dataclasses.replace(config, model=c.Model(depth=2, scan=True)))


def test_evaluation_needs_neither_training_data_nor_a_length():
  config = dataclasses.replace(replaced("data", train=c.Dataset()), duration=c.Duration())
  checks.check_evaluation(config)
  checks.check_evaluation(dataclasses.replace(config, new_head=True, evaluate_step=3))
  wrong = ((0.5, "at least 1, or auto"), (0.999, "0, at least 1"), (37, "8,288 .* most 36.5"))
  for resize, message in wrong:
    own = {"own": Classification(resize=resize)}
    with pytest.raises(c.ConfigError, match=rf"evaluate\.own\.resize={resize} .*{message}"):
      checks.check_evaluation(dataclasses.replace(config, evaluate=own))
  for resize in (c.AUTO, 0.0, 1.0, 8 / 7, 36):
    own = {"own": Classification(resize=resize)}
    checks.check_evaluation(dataclasses.replace(config, evaluate=own))
  unnamed = dataclasses.replace(config, model=c.Model(), data=c.Data(image_size=c.AUTO))
  checks.check_evaluation(unnamed)
  with pytest.raises(c.ConfigError, match=r"batch_size=64.*accumulation=3"):
    checks.check_evaluation(dataclasses.replace(config, accumulation=3))


@pytest.mark.parametrize("kind", [FewShot, Nearest])
@pytest.mark.parametrize("given", ["train", "test"])
def test_half_a_pair_is_refused(kind, given):
  parts = {part: c.Dataset("digits" if part == given else "", part) for part in ("train", "test")}
  config = dataclasses.replace(GOOD, evaluate={"a": kind(**parts)})
  message = rf"config\.evaluate\.a\.{given}\.source has no effect without config\.evaluate\.a\.t"
  for check in (resolved.checked, checks.check_evaluation):
    with pytest.raises(c.ConfigError, match=message):
      check(config)


@pytest.mark.parametrize(
  ("kinds", "key"),
  [
    ([FewShot], "data.evaluate_resize"),
    ([FewShot, Nearest], "class_names"),
  ],
)
def test_settings_are_refused_that_no_evaluation_uses(kinds, key):
  parts = {part: c.Dataset("digits", part) for part in ("train", "test")}
  specs = {kind.__name__.lower(): kind(**parts) for kind in kinds}
  config = dataclasses.replace(GOOD, evaluate=specs)
  checks.check_used(config, frozenset(["data.image_size"]))
  with pytest.raises(c.ConfigError, match=f"config.{key} has no effect: "):
    checks.check_used(config, frozenset([key, "seed"]))
  for more in (Classification("digits", "test"), Nearest(**parts)):
    if key != "class_names" or more.scores_head:
      used = dataclasses.replace(GOOD, evaluate=specs | {"more": more})
      checks.check_used(used, frozenset([key, "seed"]))
